"""Settings of an evaluation."""

import dataclasses
import os

from oni_jax.config import UserError, check_values, setting
from oni_jax.files import check_output

_COUNT = "[1, inf)"
SAMPLE, GREEDY = "sample", "greedy"  # policies
RANDOM = "random"  # another one, and a name for it where an experiment's is asked for
LATEST, BEST, ALL = "latest", "best", "all"
VIDEO_FORMATS = ("gif", "mp4")


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Who plays, and which episodes. They are the same for everyone, and held out from training."""

    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting("default_experiment", "The run whose policy plays; it may be going on.")
    checkpoint: str = setting(
        LATEST,
        "Which of the run's: latest; best, that with the highest mean_return in metrics.jsonl when it was saved (over "
        "the last stats_avg training episodes then); its number of environment steps; or all that are kept.",
    )
    policy: str = setting(
        SAMPLE,
        "sample draws actions from the policy, as in training; greedy takes the likeliest; random needs no checkpoint, "
        "and no run where root_env is named.",
        choices=(SAMPLE, GREEDY, RANDOM),
    )
    compare: str = setting(
        "", "Another experiment, or random: plays the same episodes, and the differences are shown, pair by pair."
    )
    compare_checkpoint: str = setting(LATEST, "Which of the other experiment's: latest, best, or a number of steps.")
    episodes: int = setting(256, "Episodes played; more of them begin with these.", within=_COUNT)
    root_env: str = setting("", "Task id; empty: the run's. Its actions and observations must be those of the run's.")
    plugin: str = setting("", "Module that registers environments of your own, beside the run's.", repeated=True)
    max_episode_steps: int = setting(0, "Steps after which an episode is cut off; 0: as in the run.")
    seed: int = setting(1, "Seed of games and play.", within="[0, 2147483648)")
    num_workers: int = setting(0, "Processes that play, four at most; 0: one a CPU core.", within="[0, 1024]")
    json: str = setting("", "File for everything: settings, versions, figures, and a row an episode.")
    csv: str = setting("", "File for a row an episode.")
    record: int = setting(
        0, "So many of the best, median and worst episodes each are recorded, as videos; NetHack's as ttyrecs, too."
    )
    record_format: str = setting("gif", "Kind of video; mp4 needs the package imageio-ffmpeg.", choices=VIDEO_FORMATS)
    recordings_dir: str = setting("", "Folder for recordings; empty: recordings, in the folder of the experiment.")


def check_evaluate(config: EvaluationConfig) -> None:
    """Raises UserError: what can be told from the values, and from where the files shall go."""
    check_values(config)
    check_checkpoint("checkpoint", config.checkpoint, (LATEST, BEST, ALL))
    check_checkpoint("compare_checkpoint", config.compare_checkpoint, (LATEST, BEST))
    if config.policy == RANDOM and config.compare:
        raise UserError(f"--policy random --compare: write --experiment {config.compare} --compare random")
    for flag in ("json", "csv"):
        if path := getattr(config, flag):
            check_output(flag, path)
    if config.json and os.path.realpath(config.json) == os.path.realpath(config.csv):
        raise UserError(f"--csv {config.csv}: is the file of --json too; name another")


def check_checkpoint(flag: str, value: str, words: tuple[str, ...]) -> None:
    """Raises UserError: neither one of the words nor a number."""
    if value not in words and not (value.isascii() and value.isdecimal()):
        raise UserError(f"--{flag} {value}: must be {', '.join(words)}, or a checkpoint's number of environment steps")
