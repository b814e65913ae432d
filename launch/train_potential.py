"""Trains a potential, a Preference Transformer, on the labels of launch.annotate_segments.

python -m launch.train_potential --root_env BabyAI-Text-GoToLocal-Pretraining-S20 --reward_dir preferences \
        --num_epochs 2
"""

import sys

from launch.next_commands import command, show, values_of
from launch.program import program
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_config import TrainPotential, check_fit
from oni_jax.settings.config import Config


def _run(config: TrainPotential, stop: StopRequest) -> int:
    from oni_jax.offline.bk_preference_training import train_potential
    from oni_jax.rewards.bk.preference_model import load_preference_model
    from oni_jax.rewards.trained import holds_trained

    code = train_potential(config, stop)
    if holds_trained(config.fit.reward_dir):
        horizon = load_preference_model(config.fit.reward_dir).settings.horizon
        given = {"config": "bk_pref", "reward_dir": config.fit.reward_dir, "potential_horizon": horizon}
        show(command("train", Config(), **values_of(config.env), **given))
    return code


main = program("train_potential", TrainPotential(), check_fit, _run)

if __name__ == "__main__":
    sys.exit(main())
