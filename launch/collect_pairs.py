"""Plays episodes and draws pairs of sub-episodes from them, into a data set.

python -m launch.collect_pairs --directory pairs --num_pairs 20000 --subepisode_length 8
"""

import sys

from launch.next_commands import command, show
from launch.program import program
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.pair_config import AnnotatePairs, CollectPairs, check_collect


def _run(config: CollectPairs, stop: StopRequest) -> int:
    from oni_jax.offline.pair_collection import collect_pairs

    code = collect_pairs(config, stop)
    if code == 0:
        show(command("annotate_pairs", AnnotatePairs(), directory=config.collection.directory))
    return code


main = program("collect_pairs", CollectPairs(), check_collect, _run)

if __name__ == "__main__":
    sys.exit(main())
