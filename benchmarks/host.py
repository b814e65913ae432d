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
from benchmarks.acting import config_with, measure_acting
from oni_jax.envs.base import record_dtype
from oni_jax.envs.registry import env_spec
from oni_jax.settings.config import Config

_PROCESSES = flags.DEFINE_integer("processes", 0, "Actor processes; 0 means one a core.", 0)
_GAMES = flags.DEFINE_list("games", None, "Games of all processes. (default: 256,1024,4096; 32 with --smoke)")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 8192, "Steps in a batch; at least half an unroll of all games.", 32)
_TRUNCATED = flags.DEFINE_float("truncated", 0.01, "Fraction of truncated steps.", 0.0, 1.0)
_SECS = flags.DEFINE_float("secs", None, "Seconds of a measurement. (default: 10; 1 with --smoke)", 0.0)


def config_of(num_games: int) -> Config:
    batch_size = max(
        _BATCH_SIZE.value, num_games * Config().learner.rollout // 2
    )  # half of the games play on meanwhile
    return config_with(num_games, batch_size, _PROCESSES.value or len(os.sched_getaffinity(0)))


def copies_per_sec(config: Config, secs: float) -> float:
    """Measures environment steps a second of copying their records once, on one core."""
    steps, size = config.learner.rollout, config.learner.batch_size // config.learner.rollout
    source = np.ones((steps + 1, size), record_dtype(env_spec(config.env)))
    target = np.empty_like(source)
    return harness.measure_rate(lambda: np.copyto(target, source), steps * size, secs)


def measure(num_games: int, secs: float) -> dict[str, Any]:
    """Measures a number of games, without and with truncated steps, and the bound, in turn."""
    config = config_of(num_games)
    run = functools.partial(measure_acting, config, True, secs / 2, secs)
    sides = {
        "plain": run,
        "truncated": functools.partial(run, truncated_fraction=_TRUNCATED.value),
        "copy": lambda: {"env_steps_per_sec": copies_per_sec(config, min(secs, 2.0))},
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


def main(argv: Sequence[str]) -> None:
    del argv
    secs = _SECS.value or harness.sized(10.0, 1.0)
    sizes = [int(size) for size in _GAMES.value or harness.sized((256, 1024, 4096), (32,))]
    rows = {f"{num_games}_games": measure(num_games, secs) for num_games in sizes}
    config = config_of(sizes[0])
    fixed = {"processes": config.actors.num_workers, "record_bytes": record_dtype(env_spec(config.env)).itemsize}
    harness.write_report(harness.JSON.value, {**rows, **fixed})


if __name__ == "__main__":
    app.run(main)
