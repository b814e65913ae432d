"""Calls a potential's code on windows, and says what it gives."""

import time
from collections import Counter

import numpy as np

from oni_jax.envs.registry import env_spec, seen_by_code
from oni_jax.host.reporting import report
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_config import CheckPotential
from oni_jax.offline.play import given_episodes, windows_of
from oni_jax.offline.segment_episodes import SegmentSampler
from oni_jax.rewards.bk.code import arguments_read, read_code
from oni_jax.rewards.bk.sandbox import CodeError, Sandbox, Value
from oni_jax.settings.fields import UserError

NUM_EPISODES = 16


def check_potential(config: CheckPotential, stop: StopRequest) -> int:
    """Prints what a code gives. Returns the exit code 0. Raises UserError: the code is refused, and why."""
    section = config.check
    path, code = read_code(section.code)
    env_spec(config.env)
    seen = seen_by_code(config.env)
    try:
        sandbox = Sandbox(code, section.potential_workers, seen)
    except CodeError as error:
        raise UserError(f"{path}: {error}") from None
    episodes = given_episodes(section.segments, config.env, NUM_EPISODES, section.seed, stop)
    if stop:
        return 130
    sampler = SegmentSampler(episodes, section.potential_horizon, section.seed)
    windows = windows_of([sampler.draw() for _ in range(section.num_windows)], [*seen])
    try:
        started = time.perf_counter()
        values = sandbox.call(windows)
        secs = time.perf_counter() - started
        again = sandbox.call(windows.take(range(section.num_windows)[::-1]))[::-1]
    except CodeError as error:
        raise UserError(f"{path}: {error}") from None
    finally:
        sandbox.close()
    failures = Counter(value.problem.partition(":")[0] for value in values if value.problem)
    if [value.value for value in values] != [value.value for value in again]:
        raise UserError(f"{path}: gives other values when it is called in another order: it keeps state between calls")
    _print(path, code, values, failures, secs)
    return 0


def _print(path: str, code: str, values: list[Value], failures: Counter[str], secs: float) -> None:
    reads = arguments_read(code)
    read = ["obs", *["past_obs"] * reads.past, *["past_actions"] * reads.actions]
    report(f"{path}: reads {', '.join(read)}; {1000 * secs / len(values):.3g} ms a call")
    worked = [value for value in values if not value.problem]
    columns = {"potential": [value.value for value in worked]}
    for name in dict.fromkeys(name for value in worked for name in value.parts):
        columns[name] = [value.parts[name] for value in worked if name in value.parts]
    for name, numbers in columns.items():
        low, mean, high, spread = min(numbers), np.mean(numbers), max(numbers), np.std(numbers)
        report(f"  {name}: {low:.4g} to {high:.4g}, mean {mean:.4g}, deviation {spread:.4g}, {len(numbers)} windows")
    for kind, count in failures.items():
        problem = next(value.problem for value in values if value.problem.startswith(kind))
        report(f"  {count} of {len(values)} windows fail, and count as 0: {problem}")
    if len(set(columns["potential"])) == 1:
        report("  it is the same for all windows: shaping by it pays next to nothing")
