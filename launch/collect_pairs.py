"""Plays episodes and draws pairs of sub-episodes from them, into a data set.

python -m launch.collect_pairs --directory pairs --num_pairs 20000 --subepisode_length 8
"""

import sys
from collections.abc import Sequence

from launch.next_commands import command, show
from launch.program import run_program
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.pair_config import AnnotatePairs, CollectPairs, check_collect


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code."""
    return run_program("collect_pairs", argv, CollectPairs(), check_collect, _run)


def _run(config: CollectPairs, stop: StopRequest) -> int:
    from oni_jax.offline.pair_collection import collect_pairs

    code = collect_pairs(config, stop)
    if code == 0:
        show(command("annotate_pairs", AnnotatePairs(), directory=config.collection.directory))
    return code


if __name__ == "__main__":
    sys.exit(main())
