"""Lists, shows, exports and checks recorded answers of an LLM; makes files of a run's.

python -m launch.answers --show nethack_classification --goal combat --message "You kill the newt!"
"""

import sys

from launch.program import brief_program
from oni_jax.evaluation.asking.recording import AnswersConfig, check_answers, run_answers

main = brief_program("answers", AnswersConfig(), check_answers, run_answers)

if __name__ == "__main__":
    sys.exit(main())
