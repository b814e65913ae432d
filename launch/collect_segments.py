"""Plays episodes with a run's checkpoints, or at random, and records them for potentials to be made from.

python -m launch.collect_segments --policy random --root_env BabyAI-Text-GoToLocal-Pretraining-S20
"""

import sys
from collections.abc import Sequence

from launch.program import run_program
from oni_jax.runtime import StopRequest
from oni_jax.segments.config import CollectSegments, check_collect


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code."""
    return run_program("collect_segments", argv, CollectSegments(), check_collect, _run)


def _run(config: CollectSegments, stop: StopRequest) -> int:
    from oni_jax.segments.collection import collect_segments

    return collect_segments(config, stop)


if __name__ == "__main__":
    sys.exit(main())
