"""Settings of the three offline programs: collect pairs, annotate them, train a reward on them."""

import dataclasses

from oni_jax.settings.annotation import AnnotationConfig, check_annotation, check_keeps_answers
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import UserError, setting
from oni_jax.settings.learning import NetworkConfig, TorchbeastConfig, check_network
from oni_jax.settings.worlds import EnvConfig

_COUNT = "[1, inf)"
_SEED = "[0, 2147483648)"


@dataclasses.dataclass(frozen=True)
class CollectionConfig:
    """Settings of the pairs, and of the player."""

    directory: str = setting("motif_dataset", "Folder of the data set; must be empty or missing.")
    num_pairs: int = setting(2000, "Pairs of sub-episodes sampled.", within=_COUNT)
    subepisode_length: int = setting(1, "Steps of a sub-episode (L).", within=_COUNT)
    policy: str = setting(
        "scripted",
        "Player: random keys, a simple rule (fights, picks up gold, takes stairs), or a training run's checkpoint.",
        choices=("random", "scripted", "checkpoint"),
    )
    train_dir: str = setting("./train_dir", "checkpoint: folder of experiments.")
    experiment: str = setting("default_experiment", "checkpoint: the run whose newest checkpoint plays.")
    num_envs: int = setting(20, "Games played in parallel.", within=_COUNT)
    num_env_steps: int = setting(
        0, "Environment steps to sample the sub-episodes from; 0: ten per sub-episode, at least 500 per game."
    )
    record_glyphs: bool = setting(False, "Also stores the map's glyphs, for reward encoders that read them.")
    seed: int = setting(1, "Seed of the games, the player and the sampling.", within=_SEED)


@dataclasses.dataclass(frozen=True)
class CollectPairs:
    """The program launch.collect_pairs."""

    collection: CollectionConfig = CollectionConfig()
    env: EnvConfig = EnvConfig()


@dataclasses.dataclass(frozen=True)
class PreferenceConfig:
    """Settings of the data set, and of the labelling of its pairs."""

    directory: str = setting("motif_dataset", "Folder of the data set.")
    annotator: str = setting(
        "llm",
        "Judges which is better: the LLM, the game's score, the environment's return, or chance.",
        choices=("llm", "score", "return", "random"),
    )
    n_annotation_chunks: int = setting(1, "Chunks that the pairs are split into, for parallel runs.", within=_COUNT)
    chunk_number: int = setting(0, "The chunk that this run labels, from 0.")
    ignore_existing: bool = setting(False, "Labels all pairs of this chunk again, also those that have labels.")
    custom_annotator_string: str = setting("", "Name of the preference file; empty: made from the settings.")
    flushing_freq: int = setting(1, "Labels between flushes of the file to the disk.", within=_COUNT)
    use_messages: bool = setting(True, "llm: descriptions hold the game's messages.")
    use_blstats: bool = setting(False, "llm: descriptions hold the statistics at their end, in words.")
    seed: int = setting(1, "random: seed of the labels.", within=_SEED)


@dataclasses.dataclass(frozen=True)
class AnnotatePairs:
    """The program launch.annotate_pairs."""

    preference: PreferenceConfig = PreferenceConfig()
    annotation: AnnotationConfig = AnnotationConfig()
    env: EnvConfig = EnvConfig()  # whose prompts and rules are used


@dataclasses.dataclass(frozen=True)
class RewardTrainingConfig:
    """Settings of the data set, and of the training of a reward model on its labels."""

    dataset_dir: str = setting("motif_dataset", "Folder of the data set.")
    annotator: str = setting("score", "Labels to learn from: the name of a file in preference/, without .npy.")
    batch_size: int = setting(1024, "Pairs per gradient step.", within=_COUNT)
    reward_lr: float = setting(1e-4, "Adam's learning rate.", within="(0, inf)")
    num_epochs: int = setting(5, "Passes over the training split.", within=_COUNT)
    num_workers: int = setting(0, "Accepted, without effect: pairs are read by the training process itself.")
    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting("default_experiment", "Name of the folder that the reward model is saved in.")
    seed: int = setting(1, "Seed of the split, the order and the initial weights.", within=_SEED)
    reward_encoder: str = setting(
        "nle_torchbeast_encoder", "Observation encoder of the reward model.", choices=("nle_torchbeast_encoder",)
    )


@dataclasses.dataclass(frozen=True)
class TrainReward:
    """The program launch.train_reward."""

    training: RewardTrainingConfig = RewardTrainingConfig()
    network: TorchbeastConfig = TorchbeastConfig()

    def encoder(self) -> NetworkConfig:
        return NetworkConfig(torchbeast=self.network)


def check_collect(config: CollectPairs) -> None:
    """Checks the settings. Raises UserError: the first invalid value."""
    check_values(config)
    length, longest = config.collection.subepisode_length, config.env.max_episode_steps
    if length > longest:
        raise UserError(f"--subepisode_length {length}: no episode is longer than --max_episode_steps {longest}")


def check_annotate(config: AnnotatePairs) -> None:
    """Checks the settings. Raises UserError: the first invalid value."""
    check_values(config)
    check_annotation(config.annotation)
    preference = config.preference
    if preference.chunk_number >= preference.n_annotation_chunks:
        raise UserError(
            f"--chunk_number {preference.chunk_number}: chunks are numbered from 0 to --n_annotation_chunks - 1, "
            f"which is {preference.n_annotation_chunks - 1}"
        )
    if preference.annotator == "llm" and not (preference.use_messages or preference.use_blstats):
        raise UserError("--use_messages and --use_blstats are both off: descriptions would be empty")
    check_keeps_answers(config.annotation, "the data set, in preference/")
    name = preference.custom_annotator_string
    if "/" in name or name in (".", ".."):
        raise UserError(f"--custom_annotator_string {name}: must be a file's name, without a folder")


def check_train_reward(config: TrainReward) -> None:
    """Checks the settings. Raises UserError: the first invalid value."""
    check_values(config)
    check_network(config.encoder())
    network = config.network
    if network.msg_model == "none" and not (network.use_blstats or network.use_glyphs):
        raise UserError("the reward model has no input: give it a message model, --use_blstats or --use_glyphs")
    if any(part in ("", ".", "..") for part in config.training.experiment.split("/")):
        raise UserError(f"--experiment {config.training.experiment!r}: must be the name of a folder")
