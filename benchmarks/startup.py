"""Seconds from the command to the end of the first update, with an empty compilation cache and with a warm one.

    python -m benchmarks.startup --json startup.json

Each start is a new `python -m launch.train`: the real program, games and network.
"""

import shlex
import tempfile
from collections.abc import Sequence

from absl import flags

from benchmarks import harness
from benchmarks.harness import run_app
from benchmarks.training import SMALL_FLAGS, train

_TRAIN_FLAGS = flags.DEFINE_string("train_flags", None, "Flags of every run. (default: none; small with --smoke)")

# A row of metrics after each update; the first one is waited for.
ONE_UPDATE = ("--log_every_sec=0.001", "--train_for_env_steps=1", "--save_every_sec=0")


def measure(train_flags: Sequence[str]) -> dict[str, float]:
    """Measures seconds of a cold start and of a warm one after it."""
    words = [*ONE_UPDATE, *train_flags]
    with tempfile.TemporaryDirectory() as cache:
        variables = {"JAX_COMPILATION_CACHE_DIR": cache}
        return {name: train("none", words, variables=variables).first_row_secs for name in ("cold_secs", "warm_secs")}


def main() -> None:
    train_flags = shlex.split(_TRAIN_FLAGS.value or harness.sized("", SMALL_FLAGS))
    starts = [measure(train_flags) for _ in range(harness.num_repeats(3))]
    figures = {name: harness.spread([start[name] for start in starts]) for name in ("cold_secs", "warm_secs")}
    harness.write_report(harness.JSON.value, figures)


if __name__ == "__main__":
    run_app(main)
