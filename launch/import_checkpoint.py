"""Converts a published PyTorch checkpoint of a policy or a reward model to this program's format.

python -m launch.import_checkpoint --policy policy.pth --experiment imported
"""

import dataclasses
import math
import os
import sys
from collections.abc import Mapping
from typing import Any

from launch import flags
from launch.next_commands import command, show, values_of
from launch.program import brief_program
from oni_jax.published.state_dict import StateDict, find_network, find_number, find_table, read_checkpoint
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config, check_config
from oni_jax.settings.fields import UserError, setting
from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import ActorConfig, EnvConfig

POLICY, RANKING, CLASSIFIER = "policy", "ranking model", "message classifier"
TRANSFORMER = "Preference Transformer"
REWARDS = (RANKING, CLASSIFIER, TRANSFORMER)
# Their names in published checkpoints.
MEANS = ("mean", "reward_mean", "running_mean")
VARIANCES = ("var", "variance", "reward_var", "reward_variance", "running_var")


@dataclasses.dataclass(frozen=True)
class SourceConfig:
    """Checkpoints to import into <train_dir>/<experiment>: PyTorch files, or their state dicts as .npz."""

    policy: str = setting("", "Checkpoint of a policy: makes a run, of the other settings, that launch.train resumes.")
    reward: str = setting(
        "",
        "Checkpoint of a ranking model or BK's Preference Transformer, for --reward_dir; or of a "
        "message classifier, with which the run begins.",
    )
    reward_mean: str = setting("", "Mean of the ranking model's training rewards, if its file lacks it.")
    reward_variance: str = setting("", "Variance of the ranking model's training rewards, if its file lacks it.")
    reward_quantiles: str = setting(
        "",
        "The 0.05, 0.1, ..., 0.95 quantiles of its normalised rewards, if its file lacks them: 19 numbers, separated "
        "by commas.",
    )


@dataclasses.dataclass(frozen=True)
class ImportCheckpoint:
    """Settings of launch.import_checkpoint: a source, and the sections of a run."""

    source: SourceConfig = SourceConfig()
    env: EnvConfig = EnvConfig()
    actors: ActorConfig = ActorConfig()
    network: NetworkConfig = NetworkConfig()
    learner: LearnerConfig = LearnerConfig()
    reward: RewardConfig = RewardConfig()
    annotation: AnnotationConfig = AnnotationConfig()
    run: RunConfig = RunConfig()

    def training(self) -> Config:
        sections = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Config(
            **{field.name: sections[field.name] for field in dataclasses.fields(Config) if field.name in sections}
        )


def _check(program: ImportCheckpoint) -> None:
    if not program.source.policy and not program.source.reward:
        raise UserError("nothing to import: name a PyTorch checkpoint with --policy or --reward")
    check_config(program.training())
    _normalisation(program.source, {})


def _run(program: ImportCheckpoint) -> int:
    source, config = program.source, program.training()
    policy = _read(source.policy, "--policy", POLICY)[1] if source.policy else None
    content, reward = _read(source.reward, "--reward", *REWARDS) if source.reward else ({}, None)
    if reward and reward.kind != CLASSIFIER:
        if policy:
            raise UserError(f"--policy and --reward: a {reward.kind} needs a separate folder; import it by itself")
        if reward.kind == TRANSFORMER:
            return _import_preferences(program, reward)
        return _import_reward_model(program, reward, content)
    flags.check(config)
    from oni_jax.published.importing import import_run  # imports JAX, which takes seconds: after the checks

    config = import_run(config, policy, reward)
    _print_summary(source.policy, policy)
    _print_summary(source.reward, reward)
    show(command("train", config, resume=os.path.join(config.run.train_dir, config.run.experiment)))
    return 0


def _import_reward_model(program: ImportCheckpoint, ranking: StateDict, content: Mapping[str, Any]) -> int:
    source, run = program.source, program.run
    given = _normalisation(source, content)
    missing = [f"--reward_{name}" for name, value in given.items() if value is None]
    if missing:
        raise UserError(f"{source.reward} lacks the normalisation of its rewards; add {', '.join(missing)}")
    from oni_jax.published.importing import Normalisation, import_reward_model

    folder = os.path.join(run.train_dir, run.experiment)
    import_reward_model(folder, ranking, Normalisation(**given), source.reward)
    _print_summary(source.reward, ranking)
    show(command("train", Config(), config="score_motif", reward_dir=folder))
    return 0


def _import_preferences(program: ImportCheckpoint, transformer: StateDict) -> int:
    from oni_jax.published.importing import import_preferences

    source, run, env, horizon = program.source, program.run, program.env, program.reward.potential.horizon
    folder = os.path.join(run.train_dir, run.experiment)
    import_preferences(folder, transformer, env, horizon, source.reward)
    _print_summary(source.reward, transformer)
    given = {"config": "bk_pref", "reward_dir": folder, "potential_horizon": horizon}
    show(command("train", Config(), **values_of(env), **given))
    return 0


def _read(path: str, flag: str, *kinds: str) -> tuple[Mapping[str, Any], StateDict]:
    """Reads a file. Returns its contents, and the one network of these kinds in it."""
    content = read_checkpoint(path)
    try:
        return content, find_network(content, kinds)
    except UserError as error:
        raise UserError(f"{flag} {path} {error}") from None


def _normalisation(source: SourceConfig, content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns mean, variance and quantiles: those given, else those in the file, else None."""
    levels = tuple(round(0.05 * i, 2) for i in range(1, 20))
    mean = _numbers("reward_mean", source.reward_mean, 1)
    variance = _numbers("reward_variance", source.reward_variance, 1)
    quantiles = _numbers("reward_quantiles", source.reward_quantiles, len(levels))
    squared = variance[0] if variance else find_number(content, VARIANCES)
    if squared is not None and squared <= 0:
        where = "" if variance else f", which {source.reward} holds"
        raise UserError(f"--reward_variance {squared:g}{where}: must be above 0")
    return {
        "mean": mean[0] if mean else find_number(content, MEANS),
        "variance": squared,
        "quantiles": dict(zip(levels, quantiles)) if quantiles else find_table(content, levels),
    }


def _numbers(name: str, text: str, count: int) -> list[float]:
    """Parses the numbers of a flag, none when it is empty."""
    try:
        numbers = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        numbers = [math.nan]
    if text and (len(numbers) != count or not all(map(math.isfinite, numbers)) or numbers != sorted(numbers)):
        raise UserError(
            f"--{name} {text}: must be {count} ascending numbers" if count > 1 else f"--{name} {text}: must be a number"
        )
    return numbers


def _print_summary(path: str, network: StateDict | None) -> None:
    if network:
        print(f"{path}: {network.kind}, {len(network.weights)} arrays")
        if network.left_out:
            print(f"ignored {len(network.left_out)} arrays of other networks: {', '.join(network.left_out[:4])} …")
        if any("crop" in name for name in network.weights):
            print("note: the published crop shows the map's corner; here the network sees the hero's surroundings")


main = brief_program("import_checkpoint", ImportCheckpoint(), _check, _run)

if __name__ == "__main__":
    sys.exit(main())
