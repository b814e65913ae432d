"""Environment steps a second through actors, ring, exchange and batches, with games and a policy that cost nothing.

    python -m benchmarks.ring --processes 2 --games 128 --json ring.json

Its upper bound: one copy of the same bytes, which every step's record needs at least, from the ring to a batch.
"""

import functools
import os
from collections.abc import Sequence

import numpy as np
from absl import app, flags

from benchmarks import harness
from benchmarks.acting import measure_acting
from oni_jax.config import Config, with_values
from oni_jax.envs.base import record_dtype
from oni_jax.envs.registry import env_spec

_PROCESSES = flags.DEFINE_integer("processes", 0, "Actor processes; 0 means one a core.", 0)
_GAMES = flags.DEFINE_integer("games", None, "Games in each of them. (default: 128; 16 with --smoke)", 2)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 4096, "Environment steps in a batch.", 32)
_SECS = flags.DEFINE_float("secs", None, "Seconds of a measurement. (default: 10; 1 with --smoke)", 0.0)


def copies_per_sec(config: Config, secs: float) -> float:
    """Measures environment steps a second of copying their records once, on one core."""
    steps, size = config.learner.rollout, config.learner.batch_size // config.learner.rollout
    source = np.ones((steps + 1, size), record_dtype(env_spec(config.env)))
    target = np.empty_like(source)
    return harness.measure_rate(lambda: np.copyto(target, source), steps * size, secs)


def main(argv: Sequence[str]) -> None:
    del argv
    secs = _SECS.value or harness.sized(10.0, 1.0)
    values = {
        "root_env": harness.ROOT_ENV,
        "num_workers": _PROCESSES.value or len(os.sched_getaffinity(0)),
        "num_envs_per_worker": _GAMES.value or harness.sized(128, 16),
        "batch_size": _BATCH_SIZE.value,
    }
    config = with_values(Config(), values)
    ring = functools.partial(measure_acting, config, True, secs / 2, secs)
    copy = functools.partial(copies_per_sec, config, min(secs, 2.0))
    measured = harness.alternate({"ring": ring, "copy": lambda: {"env_steps_per_sec": copy()}}, harness.num_repeats())
    rates = {name: [run["env_steps_per_sec"] for run in runs] for name, runs in measured.items()}
    record_bytes = record_dtype(env_spec(config.env)).itemsize
    figures = {
        "env_steps_per_sec": harness.spread(rates["ring"]),
        "fraction_of_one_copy": harness.ratio(rates["ring"], rates["copy"]),
        "copy_gigabytes_per_sec": harness.spread([rate * record_bytes / 1e9 for rate in rates["copy"]]),
        "record_bytes": record_bytes,
        "inference_waits_fraction": harness.spread([run["inference_waits_fraction"] for run in measured["ring"]]),
        "games_paused_fraction": harness.spread([run["games_paused_fraction"] for run in measured["ring"]]),
        "processes": config.actors.num_workers,
        "games": config.actors.num_envs_per_worker,
    }
    harness.write_report(harness.JSON.value, figures)


if __name__ == "__main__":
    app.run(main)
