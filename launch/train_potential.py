"""Trains a potential, a Preference Transformer, on the labels of launch.annotate_segments.

python -m launch.train_potential --root_env BabyAI-Text-GoToLocal-Pretraining-S20 --reward_dir preferences \
        --num_epochs 2
"""

import sys
from collections.abc import Sequence

from launch.program import run_program
from oni_jax.potentials.config import TrainPotential, check_fit
from oni_jax.runtime import StopRequest


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code."""
    return run_program("train_potential", argv, TrainPotential(), check_fit, _run)


def _run(config: TrainPotential, stop: StopRequest) -> int:
    from oni_jax.potentials.preference_training import train_potential

    return train_potential(config, stop)


if __name__ == "__main__":
    sys.exit(main())
