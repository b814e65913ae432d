"""Environment steps a second that one inference thread carries, with games and a policy that cost nothing.

    python -m benchmarks.host --games 256,1024,4096 --json host.json

Everything else is real: actor processes, pipes, shared memory, inference server, batches. Each number of games is
measured as it is, and with `--truncated` of the steps truncated, whose final observations are valued. The bound of
both: one copy of the same bytes, which every step's record needs at least, from the ring to a batch.
"""

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks import harness
from benchmarks.acting import measure_acting
from oni_jax.config import Config, with_values
from oni_jax.envs.base import record_dtype
from oni_jax.envs.registry import env_spec

_PROCESSES = flags.DEFINE_integer("processes", 0, "Actor processes; 0 means one a core.", 0)
_GAMES = flags.DEFINE_list("games", None, "Games of all processes. (default: 256,1024,4096; 32 with --smoke)")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 8192, "Environment steps in a batch, at least one a game.", 32)
_TRUNCATED = flags.DEFINE_float("truncated", 0.01, "Fraction of truncated steps.", 0.0, 1.0)
_SECS = flags.DEFINE_float("secs", None, "Seconds of a measurement. (default: 10; 1 with --smoke)", 0.0)


def config_with(num_games: int) -> Config:
    num_processes = _PROCESSES.value or len(os.sched_getaffinity(0))
    values = {"num_workers": num_processes, "num_envs_per_worker": num_games // num_processes}
    rollout = Config().learner.rollout
    batch_size = max(_BATCH_SIZE.value, num_games * rollout // 2)  # half of the games play on meanwhile
    return with_values(Config(), {"root_env": harness.ROOT_ENV, "batch_size": batch_size, **values})


def copies_per_sec(secs: float) -> float:
    """Measures environment steps a second of copying their records once, on one core."""
    learner = Config().learner
    source = np.ones((learner.rollout + 1, learner.batch_size // learner.rollout), record_dtype(_spec()))
    target = np.empty_like(source)
    return harness.measure_rate(lambda: np.copyto(target, source), learner.batch_size, secs)


def measure(num_games: int, secs: float) -> dict[str, Any]:
    """Measures a number of games, without and with truncated steps, and the bound, in turn."""
    run = functools.partial(measure_acting, config_with(num_games), True, secs / 2, secs)
    sides = {
        "plain": run,
        "truncated": functools.partial(run, truncated_fraction=_TRUNCATED.value),
        "copy": lambda: {"env_steps_per_sec": copies_per_sec(min(secs, 2.0))},
    }
    measured = harness.alternate(sides, harness.num_repeats())
    rates = {name: [own["env_steps_per_sec"] for own in runs] for name, runs in measured.items()}
    print(f"{num_games} games: {np.median(rates['plain']):,.0f} steps/s", flush=True)
    return {
        "env_steps_per_sec": harness.spread(rates["plain"]),
        "fraction_with_truncations": harness.ratio(rates["truncated"], rates["plain"]),
        "fraction_of_one_copy": harness.ratio(rates["plain"], rates["copy"]),
        **{
            name: harness.spread([own[name] for own in measured["plain"]])
            for name in ("inference_thread_cpu_secs_per_step", "inference_waits_fraction", "games_paused_fraction")
        },
    }


def _spec() -> Any:
    return env_spec(Config().env)


def main(argv: Sequence[str]) -> None:
    del argv
    secs = _SECS.value or harness.sized(10.0, 1.0)
    sizes = [int(size) for size in _GAMES.value or harness.sized((256, 1024, 4096), (32,))]
    rows = {f"{num_games}_games": measure(num_games, secs) for num_games in sizes}
    processes, size = config_with(sizes[0]).actors.num_workers, record_dtype(_spec()).itemsize
    harness.write_report(harness.JSON.value, {**rows, "processes": processes, "record_bytes": size})


if __name__ == "__main__":
    app.run(main)
