"""Lists, shows, exports and checks recorded answers of an LLM; makes files of a run's.

python -m launch.answers --show nethack_classification --goal combat --message "You kill the newt!"
"""

import sys
from collections.abc import Sequence

from launch.program import run_brief_program
from oni_jax.evaluation.asking.recording import AnswersConfig, check_answers, run_answers


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code."""
    return run_brief_program("answers", argv, AnswersConfig(), check_answers, run_answers)


if __name__ == "__main__":
    sys.exit(main())
