"""Trains an agent (or resumes the training of one).

python -m launch.train --config score_retrieval --experiment first --train_for_env_steps 1000000
"""

import sys
from collections.abc import Sequence

import oni_jax
from launch import flags, help
from launch.program import run_program
from oni_jax.config import Config
from oni_jax.runtime import StopRequest, tune_memory


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None).

    Returns:
        The exit code: 0 done or stopped by a signal, 2 bad input (one line on stderr), 130 interrupted twice.
    """
    if argv is None and not help.wants_help(sys.argv[1:]):
        tune_memory()
    return run_program("train", argv, flags.TRAINING, lambda config: None, _run)  # `oni_jax.train` checks


def _run(config: Config, stop: StopRequest) -> int:
    stop.usr1_saves = config.run.on_sigusr1 == "save"
    oni_jax.train(config, stop=stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
