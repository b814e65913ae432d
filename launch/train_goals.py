"""Trains a model of the goals that an LLM suggests on recorded answers, for trainings that ask nothing.

python -m launch.train_goals --out goals
"""

import os
import sys

from launch.next_commands import command, show
from launch.program import brief_program
from oni_jax.offline.goal_config import TrainGoals, check_train_goals
from oni_jax.settings.config import Config
from oni_jax.settings.fields import counted


def _run(config: TrainGoals) -> int:
    from oni_jax.offline.goal_training import train_goals

    learnt = train_goals(config)
    print(
        f"{config.out}: learnt from {counted(learnt.num_answers, 'answer')}; agrees with those held out by "
        f"{learnt.agreement:.3f} (Jaccard index), calibration error {learnt.calibration_error:.4f}",
        flush=True,
    )
    name = os.path.basename(os.path.abspath(config.out))
    world = {"root_env": config.root_env, "plugin": config.plugin}
    show(command("train", Config(), config="ellm_llm", **world, reward_dir=config.out, experiment=f"ellm_{name}"))
    return 0


main = brief_program("train_goals", TrainGoals(), check_train_goals, _run)

if __name__ == "__main__":
    sys.exit(main())
