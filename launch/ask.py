"""Tries a prompt before a training: shows what an LLM answers to captions under the settings of a run.

python -m launch.ask --config score_retrieval --message "You kill the newt!" --message "It is dark."
"""

import sys
from collections.abc import Sequence

from launch.program import run_program
from oni_jax.asking.config import Ask, check_ask
from oni_jax.asking.program import ask


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code."""
    return run_program("ask", argv, Ask(), check_ask, ask)


if __name__ == "__main__":
    sys.exit(main())
