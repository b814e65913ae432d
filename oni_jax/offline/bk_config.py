"""Settings of the programs that make and check potentials."""

import dataclasses

from oni_jax.settings.annotation import AnnotationConfig, check_annotation, check_keeps_answers
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import UserError, setting
from oni_jax.settings.learning import as_network, check_network
from oni_jax.settings.worlds import EnvConfig

_COUNT = "[1, inf)"


@dataclasses.dataclass(frozen=True)
class CheckConfig:
    """The code to check, and the windows that it is called on."""

    code: str = setting("", "File of the code, or its folder.", positional=True)
    segments: str = setting("", "Folder of launch.collect_segments; empty: episodes of random actions.")
    num_windows: int = setting(500, "Windows that the code is called on.", within="[1, 1000000]")
    potential_horizon: int = setting(
        5, "Steps before the present one in a window.", aliases=("reward_model_horizon",), within="[1, 1000]"
    )
    potential_workers: int = setting(1, "Processes that call the code.", within="[1, 256]")
    seed: int = setting(1, "Seed of the episodes and of the draws.", within="[0, 2147483648)")


@dataclasses.dataclass(frozen=True)
class CheckPotential:
    """Settings of launch.check_potential."""

    check: CheckConfig = CheckConfig()
    env: EnvConfig = EnvConfig()


@dataclasses.dataclass(frozen=True)
class ConversationConfig:
    """A conversation with an LLM about segments."""

    reward_dir: str = setting(
        "", "Folder for what is written and for the conversation, which goes on where it stopped; required."
    )
    segments: str = setting(
        "",
        "Folder of launch.collect_segments; empty: episodes of random actions.",
        aliases=("dataset_path",),
    )
    max_tokens: int = setting(
        6000, "Tokens of the conversation, about; its oldest rounds are dropped. 0: it is never cut."
    )
    seed: int = setting(1, "Seed of the episodes and of the draws.", within="[0, 2147483648)")


@dataclasses.dataclass(frozen=True)
class WriteConfig(ConversationConfig):
    """The conversation in which an LLM writes a potential."""

    num_rounds: int = setting(
        20, "Rounds: codes that the LLM writes, each shown on segments.", aliases=("num_iterations",), within=_COUNT
    )
    num_samples: int = setting(
        5, "Segments that a code is shown on in a round.", aliases=("num_eval_samples",), within="[1, 100]"
    )
    num_tries: int = setting(
        15, "Answers asked for until one holds a code, or one that works.", aliases=("retry_times",), within=_COUNT
    )
    segment_length: int = setting(
        5, "Steps of a segment, as many as the potential's horizon.", aliases=("sequence_length",), within="[1, 1000]"
    )


@dataclasses.dataclass(frozen=True)
class WriteGoalsConfig(ConversationConfig):
    """The conversation in which an LLM names goals."""

    num_rounds: int = setting(
        500, "Rounds: segments that the LLM names goals for.", aliases=("num_iterations",), within=_COUNT
    )
    num_tries: int = setting(15, "Answers asked for until one names a goal.", aliases=("retry_times",), within=_COUNT)
    segment_length: int = setting(
        3, "Steps of a segment; bk-goal compares the last 3 with it.", aliases=("sequence_length",), within="[1, 1000]"
    )


@dataclasses.dataclass(frozen=True)
class WritePotential:
    """Settings of launch.write_potential."""

    write: WriteConfig = WriteConfig()
    env: EnvConfig = EnvConfig()
    annotation: AnnotationConfig = AnnotationConfig(llm_temperature=0.5, llm_max_tokens=4096)


@dataclasses.dataclass(frozen=True)
class WriteGoals:
    """Settings of launch.write_goals."""

    write: WriteGoalsConfig = WriteGoalsConfig()
    env: EnvConfig = EnvConfig()
    annotation: AnnotationConfig = AnnotationConfig(llm_temperature=0.5, llm_max_tokens=1024)


@dataclasses.dataclass(frozen=True)
class CompareConfig:
    """The pairs of segments that an LLM compares."""

    reward_dir: str = setting("", "Folder for the pairs and their labels; the same command resumes. Required.")
    segments: str = setting(
        "",
        "Folder of launch.collect_segments; empty: episodes of random actions.",
        aliases=("dataset_path",),
    )
    num_pairs: int = setting(5000, "Pairs of segments.", aliases=("dataset_size",), within=_COUNT)
    segment_length: int = setting(
        5, "Steps of a segment, as many as the potential's horizon.", aliases=("sequence_length",), within="[1, 1000]"
    )
    seed: int = setting(42, "Seed of the episodes and of the draws.", within="[0, 2147483648)")


@dataclasses.dataclass(frozen=True)
class AnnotateSegments:
    """Settings of launch.annotate_segments."""

    compare: CompareConfig = CompareConfig()
    env: EnvConfig = EnvConfig()
    annotation: AnnotationConfig = AnnotationConfig(llm_temperature=0.5)


@dataclasses.dataclass(frozen=True)
class FitConfig:
    """The labelled pairs, and the training of a network on them."""

    reward_dir: str = setting("", "Folder of launch.annotate_segments, to which the network is added; required.")
    preferences: str = setting(
        "", "Published data set of labelled pairs, an .npy; empty: the pairs of reward_dir.", aliases=("dataset_path",)
    )
    data_size: int = setting(10000, "Pairs that are used, at most.", within=_COUNT)
    test_fraction: float = setting(0.1, "Of the pairs, to test with.", aliases=("test_size",), within="[0, 1)")
    num_epochs: int = setting(5, "Passes over the pairs.", aliases=("epoch",), within=_COUNT)
    batch_size: int = setting(32, "Pairs per gradient step.", within=_COUNT)
    learning_rate: float = setting(3e-4, "AdamW's learning rate.", within="(0, inf)")
    attention: str = setting(
        "scaled",
        "Weights of a segment's steps: softmax(q.k / sqrt(width)), or softmax(q.k) as in BK's published code.",
        choices=("scaled", "published"),
    )
    encoder_custom: str = setting("bk_encoder", "Encoder of the observations, by name.")
    hidden_size: int = setting(512, "Outputs of the encoder.", within=_COUNT)
    width: int = setting(128, "Width of the transformer.", within=_COUNT)
    seed: int = setting(42, "Seed of the split, the order and the initial weights.", within="[0, 2147483648)")


@dataclasses.dataclass(frozen=True)
class TrainPotential:
    """Settings of launch.train_potential."""

    fit: FitConfig = FitConfig()
    env: EnvConfig = EnvConfig()


def check_annotate(config: AnnotateSegments) -> None:
    """Raises UserError for invalid values."""
    check_values(config)
    check_annotation(config.annotation)
    if not config.compare.reward_dir:
        raise UserError("--reward_dir: is required: a folder for the pairs and their labels")
    check_keeps_answers(config.annotation, "--reward_dir")


def check_fit(config: TrainPotential) -> None:
    """Raises UserError for invalid values."""
    check_values(config)
    check_network(as_network(config.fit.encoder_custom, config.fit.hidden_size))
    if not config.fit.reward_dir:
        raise UserError("--reward_dir: is required: the folder that launch.annotate_segments wrote")


def check_check(config: CheckPotential) -> None:
    """Raises UserError for invalid values."""
    check_values(config)
    if not config.check.code:
        raise UserError("no code given: write launch.check_potential FILE.py --root_env ID")


def check_write(config: WritePotential | WriteGoals) -> None:
    """Raises UserError for invalid values."""
    check_values(config)
    check_annotation(config.annotation)
    if not config.write.reward_dir:
        raise UserError("--reward_dir: is required: a folder for what is written and for the conversation")
    check_keeps_answers(config.annotation, "--reward_dir")
