"""Settings of playing in the terminal."""

import dataclasses

from oni_jax.evaluation.config import BEST, GREEDY, LATEST, RANDOM, SAMPLE, check_checkpoint, check_file
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import UserError, setting

HUMAN = "human"


@dataclasses.dataclass(frozen=True)
class PlayConfig:
    """Player and episode in the terminal; the keys are listed beside the screen."""

    policy: str = setting(
        HUMAN,
        "human: a person at the keyboard; random: uniformly random actions; sample, greedy: a run's policy.",
        choices=(HUMAN, RANDOM, SAMPLE, GREEDY),
    )
    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting(
        "", "Run whose policy plays, and whose labels and rewards are shown; human and random need none."
    )
    checkpoint: str = setting(LATEST, "Checkpoint of the run: latest, best, or its number of environment steps.")
    root_env: str = setting(
        "", "Task of NetHack, BabyAI-Text or Crafter; empty: the run's, or NetHackScore-v1 without one."
    )
    max_episode_steps: int = setting(0, "Steps after which the episode is truncated; 0: as in the run.")
    seed: int = setting(1, "Seed of the game and of actions.", within="[0, 2147483648)")
    episode: int = setting(
        0, "Index of the episode, as in launch.evaluate with the same seed.", within="[0, 2147483648)"
    )
    goal: str = setting(
        "",
        "Goal at first, for an agent of several: one of --goal_key, or with --goal_input text any "
        "text; empty: the episode's.",
    )
    steps_per_sec: float = setting(4.0, "Initial speed, unless a person plays.", within="[0.5, 128]")
    file: str = setting(
        "", "File of launch.export, or one of the package's policies by name, in a run's stead.", positional=True
    )
    trust_code: bool = setting(False, "Run the plugins of the file; read them first.")


def check_play(config: PlayConfig) -> None:
    """Raises UserError for invalid values."""
    check_values(config)
    check_file(config.file, config.trust_code, config.experiment, PlayConfig.experiment)
    if config.policy in (SAMPLE, GREEDY) and not (config.experiment or config.file):
        raise UserError(f"--policy {config.policy}: name the run whose policy it is with --experiment")
    if config.goal and not config.experiment:
        raise UserError(f"--goal {config.goal}: is of a run with several; name it with --experiment")
    check_checkpoint("checkpoint", config.checkpoint, (LATEST, BEST))
