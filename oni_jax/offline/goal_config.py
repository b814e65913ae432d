"""Settings of the program that trains a goal model."""

import dataclasses
from typing import Any

from oni_jax.settings.config import check_values
from oni_jax.settings.fields import POSITIVE, UserError, plugin_sections, setting


@dataclasses.dataclass(frozen=True)
class TrainGoals:
    """The program launch.train_goals."""

    root_env: str = setting("CrafterTextEnv-v1", "Task id of a world with goals, whose captions have features.")
    answers: str = setting("recorded", "Answers to learn from: recorded (the package's), or a file.")
    out: str = setting("", "Folder for the model, for --reward_dir; required.")
    reward_model_lr: float = setting(1e-2, "Adam's step size.", within=POSITIVE)
    reward_model_batch_size: int = setting(512, "Answers in a gradient step.", within="[1, inf)")
    seed: int = setting(1, "Of the weights and the batches.", within="[0, inf)")
    plugin: str = setting("", "Module that registers your environment; may be given several times.", repeated=",")
    plugin_sections: tuple[Any, ...] = plugin_sections("EnvConfig")


def check_train_goals(config: TrainGoals) -> None:
    """Raises UserError: bad values."""
    check_values(config)
    if not config.out:
        raise UserError("--out must be given: a folder for the model")
    if config.answers == "judge":
        raise UserError("--answers judge: name recorded answers, or a file")
