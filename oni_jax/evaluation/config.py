"""Settings of an evaluation."""

import dataclasses
import os
from typing import Any

from oni_jax.host.files import check_output
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import UserError, plugin_sections, setting

_COUNT = "[1, inf)"
SAMPLE, GREEDY = "sample", "greedy"  # policies
RANDOM = "random"  # another policy, also accepted where an experiment's name is expected
GOALS = ("crafter_task", "goal_suggester")  # settings of the goals that are asked for
LATEST, BEST, ALL = "latest", "best", "all"
VIDEO_FORMATS = ("gif", "mp4")


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Players and episodes of an evaluation. Episodes are the same for every player, and held out from training."""

    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting("default_experiment", "Run whose policy plays; it may still be training.")
    checkpoint: str = setting(
        LATEST,
        "Checkpoint: latest; best, by mean_return over stats_avg episodes when it was saved; its "
        "environment steps; or all.",
    )
    policy: str = setting(
        SAMPLE,
        "sample draws actions from the policy, as in training; greedy takes the most probable; random needs no "
        "checkpoint, and no run if root_env is given.",
        choices=(SAMPLE, GREEDY, RANDOM),
    )
    compare: str = setting(
        "", "Another experiment, or random, that plays the same episodes; paired differences are reported."
    )
    compare_checkpoint: str = setting(LATEST, "Checkpoint of the other experiment: latest, best, or a number of steps.")
    episodes: int = setting(256, "Number of episodes; a larger number begins with the same ones.", within=_COUNT)
    root_env: str = setting("", "Task id, with the actions and observations of the run's; empty: the run's.")
    crafter_task: str = setting(
        "",
        "Goal or task of Crafter's that pays instead of the run's reward, and that a goal_conditioned policy sees, as "
        "in launch.train; empty: the run's.",
    )
    goal_suggester: str = setting(
        "",
        "Who suggests the goals that a goal_conditioned policy sees, as in launch.train; empty: --crafter_task, or the "
        "run's.",
        choices=("", "oracle", "task", "all", "random", "llm", "model"),
    )
    goal: str = setting(
        "",
        "Goal of all episodes, for an agent of several: one of --goal_key, or with --goal_input text "
        "any text; empty: as the run draws it.",
    )
    by_goal: bool = setting(
        False,
        "An agent of several goals plays the same episodes under each; a table compares what it does, and "
        "what the labels of each goal would pay for it.",
    )
    plugin: str = setting("", "Module that registers environments of your own, besides the run's.", repeated=",")
    max_episode_steps: int = setting(0, "Steps after which an episode is truncated; 0: as in the run.")
    seed: int = setting(1, "Seed of environments and actions.", within="[0, 2147483648)")
    num_workers: int = setting(0, "Actor processes, four at most; 0: one per CPU core.", within="[0, 1024]")
    json: str = setting("", "Output file for settings, versions, statistics, and a row per episode.")
    csv: str = setting("", "Output file for a row per episode.")
    record: int = setting(
        0, "Number of best, median and worst episodes each to record as videos; NetHack's as ttyrecs, too."
    )
    record_format: str = setting("gif", "Video format; mp4 needs the package imageio-ffmpeg.", choices=VIDEO_FORMATS)
    recordings_dir: str = setting("", "Folder for recordings; empty: recordings, in the experiment's folder.")

    file: str = setting(
        "",
        "File of launch.export, or one of the package's policies by name, that plays in a run's stead.",
        positional=True,
    )
    trust_code: bool = setting(False, "Run the plugins of the file; read them first.")
    plugin_sections: tuple[Any, ...] = plugin_sections("EnvConfig")  # the run's values


def check_evaluate(config: EvaluationConfig) -> None:
    """Raises UserError for invalid values, and for output files that can't be written."""
    check_values(config)
    check_file(config.file, config.trust_code, config.experiment, EvaluationConfig.experiment)
    check_checkpoint("checkpoint", config.checkpoint, (LATEST, BEST, ALL))
    check_checkpoint("compare_checkpoint", config.compare_checkpoint, (LATEST, BEST))
    if config.policy == RANDOM and config.compare:
        raise UserError(f"--policy random --compare: write --experiment {config.compare} --compare random")
    if config.compare_checkpoint != LATEST and not config.compare:
        raise UserError(f"--compare_checkpoint {config.compare_checkpoint}: of which run? Add --compare")
    if config.by_goal and (config.goal or config.policy == RANDOM):
        other = "--policy random" if config.policy == RANDOM else f"--goal {config.goal}"
        raise UserError(f"--by_goal: plays a run's policy under each of its goals; leave {other} out")
    for flag in ("json", "csv"):
        if path := getattr(config, flag):
            check_output(flag, path)
    if config.json and os.path.realpath(config.json) == os.path.realpath(config.csv):
        raise UserError(f"--csv {config.csv}: is the file of --json too; name another")


def check_file(file: str, trust_code: bool, experiment: str, unnamed: str) -> None:
    """Raises UserError: both a file and an experiment are named, or code is trusted and there is no file."""
    if file and experiment != unnamed:
        raise UserError(f"--experiment {experiment}: and {file} is to play; name one of them")
    if trust_code and not file:
        raise UserError("--trust_code: is for a file of launch.export; name one, or leave it out")


def check_checkpoint(flag: str, value: str, words: tuple[str, ...]) -> None:
    """Raises UserError unless `value` is one of the words or a number."""
    if value not in words and not (value.isascii() and value.isdecimal()):
        raise UserError(f"--{flag} {value}: must be {', '.join(words)}, or a checkpoint's number of environment steps")
