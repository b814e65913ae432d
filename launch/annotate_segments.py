"""Has an LLM compare pairs of recorded segments, for a potential to be trained on. Resumes.

python -m launch.annotate_segments --root_env BabyAI-Text-GoToLocal-Pretraining-S20 --segments segments \
        --reward_dir preferences
"""

import sys

from launch.next_commands import command, show, values_of
from launch.program import program
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_config import AnnotateSegments, TrainPotential, check_annotate


def _run(config: AnnotateSegments, stop: StopRequest) -> int:
    from oni_jax.offline.bk_comparison import annotate_segments

    code = annotate_segments(config, stop)
    if code == 0:
        given = {**values_of(config.env), "reward_dir": config.compare.reward_dir}
        show(command("train_potential", TrainPotential(), **given))
    return code


main = program("annotate_segments", AnnotateSegments(), check_annotate, _run)

if __name__ == "__main__":
    sys.exit(main())
