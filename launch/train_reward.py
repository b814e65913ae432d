"""Trains a reward model on the labelled pairs of a data set.

python -m launch.train_reward --dataset_dir pairs --annotator llm --experiment reward
"""

import os
import sys

from launch.next_commands import command, show
from launch.program import program
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.pair_config import TrainReward, check_train_reward
from oni_jax.settings.config import Config


def _run(config: TrainReward, stop: StopRequest) -> int:
    from oni_jax.host.caches import keep_compiled_code
    from oni_jax.offline.pair_reward_training import train_reward
    from oni_jax.rewards.trained import holds_trained

    keep_compiled_code()
    code = train_reward(config, stop)
    folder = os.path.join(config.training.train_dir, config.training.experiment)
    if holds_trained(folder):
        show(command("train", Config(), config="score_motif", reward_dir=folder))
    return code


main = program("train_reward", TrainReward(), check_train_reward, _run)

if __name__ == "__main__":
    sys.exit(main())
