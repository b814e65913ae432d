"""Has an LLM name goals for segments, by which bk-goal shapes. Resumes after its last answer.

python -m launch.write_goals --root_env BabyAI-Text-GoToLocal-Pretraining-S20 --segments segments \
        --reward_dir goals
"""

import sys
from collections.abc import Sequence

from launch.program import run_program
from oni_jax.potentials.config import WriteGoals, check_write
from oni_jax.runtime import StopRequest


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code."""
    return run_program("write_goals", argv, WriteGoals(), check_write, _run)


def _run(config: WriteGoals, stop: StopRequest) -> int:
    from oni_jax.potentials.goal_writer import write_goals

    return write_goals(config, stop)


if __name__ == "__main__":
    sys.exit(main())
