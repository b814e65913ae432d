"""Labels a data set's pairs by an LLM or a rule: which of two sub-episodes is better. Resumes where it stopped.

python -m launch.annotate_pairs --directory pairs --goal_key defaultgoal --custom_annotator_string llm
"""

import sys
from collections.abc import Sequence

from launch.program import run_program
from oni_jax.preferences.config import AnnotatePairs, check_annotate
from oni_jax.runtime import StopRequest


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code."""
    return run_program("annotate_pairs", argv, AnnotatePairs(), check_annotate, _run)


def _run(config: AnnotatePairs, stop: StopRequest) -> int:
    from oni_jax.preferences.annotation import annotate_pairs

    return annotate_pairs(config, stop)


if __name__ == "__main__":
    sys.exit(main())
