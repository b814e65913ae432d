"""Settings of a collection of episodes."""

import dataclasses

from oni_jax.evaluation.config import ALL, RANDOM, SAMPLE, EvaluationConfig, check_checkpoint
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import UserError, setting

_COUNT = "[1, inf)"


@dataclasses.dataclass(frozen=True)
class SegmentsConfig:
    """Players and episodes of a collection."""

    directory: str = setting("", "New folder for the episodes, a file for each player; required.")
    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting("default_experiment", "Run whose checkpoints play.")
    checkpoint: str = setting(
        ALL, "Checkpoints that play: all, latest, best, or one by its number of environment steps."
    )
    policy: str = setting(
        SAMPLE,
        "sample draws actions from the policy; random needs no run if root_env is given.",
        choices=(SAMPLE, RANDOM),
    )
    root_env: str = setting("", "Task id, with the actions and observations of the run's; empty: the run's.")
    plugin: str = setting("", "Module that registers environments of your own, besides the run's.", repeated=",")
    max_episode_steps: int = setting(0, "Steps after which an episode is truncated; 0: as in the run.")
    episodes: int = setting(50, "Episodes that each player plays.", aliases=("num_eval_episodes",), within=_COUNT)
    num_envs: int = setting(16, "Environments side by side.", within="[1, 1024]")
    seed: int = setting(1, "Seed of environments and actions.", within="[0, 2147483648)")


@dataclasses.dataclass(frozen=True)
class CollectSegments:
    """Settings of launch.collect_segments."""

    segments: SegmentsConfig = SegmentsConfig()


def check_collect(config: CollectSegments) -> None:
    """Raises UserError for invalid values."""
    check_values(config)
    if not config.segments.directory:
        raise UserError("--directory: is required: a new folder for the episodes")
    check_checkpoint("checkpoint", config.segments.checkpoint, (ALL, "latest", "best"))


def as_evaluation(config: SegmentsConfig) -> EvaluationConfig:
    """Returns the settings that choose the players."""
    names = ("train_dir", "experiment", "checkpoint", "policy", "root_env", "plugin", "max_episode_steps", "seed")
    return EvaluationConfig(**{name: getattr(config, name) for name in names})
