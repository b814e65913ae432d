"""Speed over actor processes, games and batch size, and time of an inference step over games.

    python -m benchmarks.scaling --json scaling.json

`acting`: environment steps a second through the actors, with a policy that costs nothing. `training`: a whole
training run for each batch size. `inference`: milliseconds from observations to actions, both on the host.
"""

import functools
import os
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks import harness
from benchmarks.acting import measure_acting
from benchmarks.builders import PolicyStep
from benchmarks.training import SMALL_FLAGS, train
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values

_PROCESSES = flags.DEFINE_list("processes", None, "Actor processes. (default: powers of two up to the cores)")
_GAMES = flags.DEFINE_list("games", None, "Games in each. (default: 8,32,128; 4 with --smoke)")
_BATCH_SIZES = flags.DEFINE_list(
    "batch_sizes", None, "Batch sizes of training. (default: 512,1024,2048,4096,8192; 128 with --smoke)"
)
_STEP_SIZES = flags.DEFINE_list(
    "step_sizes", None, "Games in an inference step. (default: 2,8,32,128,512,2048; 16 with --smoke)"
)
_SECS = flags.DEFINE_float("secs", None, "Seconds of each measurement of acting. (default: 5; 1 with --smoke)")
_TRAIN_STEPS = flags.DEFINE_integer(
    "train_steps", None, "Environment steps of a training. (default: 60,000; 1,280 with --smoke)", 1
)
_TRAIN_FLAGS = flags.DEFINE_string("train_flags", None, "Its flags. (default: 20 games per core; small with --smoke)")


def powers_of_two(most: int) -> list[int]:
    """Returns the powers of two below `most`, and `most`."""
    return [1 << power for power in range((most - 1).bit_length())] + [most]


def measure_acting_sizes(processes: Sequence[int], games: Sequence[int], secs: float, repeats: int) -> dict[str, Any]:
    sides = {}
    for num_workers in processes:
        for num_games in games:
            values = {"root_env": harness.ROOT_ENV, "num_workers": num_workers, "num_envs_per_worker": num_games}
            config = with_values(Config(), values)
            name = f"{num_workers}_processes_{num_games}_games"
            sides[name] = functools.partial(measure_acting, config, False, secs / 2, secs)
    return {
        name: {"env_steps_per_sec": harness.spread([run["env_steps_per_sec"] for run in runs])}
        for name, runs in harness.alternate(sides, repeats).items()
    }


def measure_training(
    batch_sizes: Sequence[int], num_steps: int, train_flags: Sequence[str], repeats: int
) -> dict[str, Any]:
    """Measures runs of at least six updates, without the first third of each."""

    def measure(size: int) -> float:
        steps = max(num_steps, 6 * size)
        sizes = (
            f"--batch_size={size}",
            f"--train_for_env_steps={steps}",
            f"--log_every_sec={harness.sized(1.0, 0.01)}",
        )
        return train("none", [*train_flags, *sizes]).env_steps_per_sec()

    sides = {f"batch_{size}": functools.partial(measure, size) for size in batch_sizes}
    return {
        name: {"env_steps_per_sec": harness.spread(rates)} for name, rates in harness.alternate(sides, repeats).items()
    }


def measure_inference(sizes: Sequence[int], secs: float, repeats: int) -> dict[str, Any]:
    def measure(step: PolicyStep) -> float:
        return 1e3 / harness.measure_rate(lambda: np.asarray(step.start()), 1, secs)

    steps = {f"{size}_games": PolicyStep(size) for size in sizes}
    for step in steps.values():
        np.asarray(step.start())  # compiled
    sides = {name: functools.partial(measure, step) for name, step in steps.items()}
    return {name: {"step_ms": harness.spread(ms)} for name, ms in harness.alternate(sides, repeats).items()}


def main(argv: Sequence[str]) -> None:
    del argv

    def numbers(flag: flags.FlagHolder, full: list[int], smoke: list[int]) -> list[int]:
        return [int(text) for text in flag.value or harness.sized(full, smoke)]

    repeats, secs = harness.num_repeats(2), _SECS.value or harness.sized(5.0, 1.0)
    processes = numbers(_PROCESSES, powers_of_two(len(os.sched_getaffinity(0))), [1])
    games = numbers(_GAMES, [8, 32, 128], [4])
    batch_sizes = numbers(_BATCH_SIZES, [512, 1024, 2048, 4096, 8192], [128])
    step_sizes = numbers(_STEP_SIZES, [2, 8, 32, 128, 512, 2048], [16])
    train_steps = _TRAIN_STEPS.value or harness.sized(60_000, 1_280)
    train_flags = shlex.split(_TRAIN_FLAGS.value or harness.sized("", SMALL_FLAGS))
    figures = {
        "acting": measure_acting_sizes(processes, games, secs, repeats),
        "training": measure_training(batch_sizes, train_steps, train_flags, repeats),
        "inference": measure_inference(step_sizes, min(secs, 2.0), repeats),
    }
    harness.write_report(harness.JSON.value, figures)


if __name__ == "__main__":
    app.run(main)
