"""Settings of the intrinsic reward."""

import dataclasses
from typing import Any

from oni_jax.settings.fields import COUNT, POSITIVE, WIDTH, plugin_sections, setting


@dataclasses.dataclass(frozen=True)
class CaptionRewardConfig:
    """Rewards of captions."""

    count_exponent: float = setting(
        3.0,
        "A caption seen n times in an episode has its reward divided by n^this.",
        flag="beta_count_exponent",
    )
    at: str = setting(
        "obs",
        "Caption that a step is paid for: before its action, or after it.",
        choices=("obs", "next_obs"),
        flag="intrinsic_reward_at",
    )


@dataclasses.dataclass(frozen=True)
class RewardModelConfig:
    """Reward models."""

    learning_rate: float = setting(
        1e-4, "Adam's step size for a reward model.", within=POSITIVE, flag="reward_model_lr"
    )
    batch_size: int = setting(
        256, "Captions, or pairs, in a reward model's gradient step.", within=COUNT, flag="reward_model_batch_size"
    )
    gradient_steps_per_update: int = setting(
        32,
        "Gradient steps when labels come, while few are held.",
        within=COUNT,
        flag="reward_model_gradient_steps_per_update",
    )
    few_labels: int = setting(
        25_000,
        "Labels, or pairs, from which on there is one gradient step an update.",
        flag="reward_model_few_labels",
    )
    dataset_size: int = setting(
        262_144,
        "Labels, or pairs, that a reward model holds: the newest.",
        within=COUNT,
        flag="reward_dataset_size",
    )


@dataclasses.dataclass(frozen=True)
class RankingConfig:
    """Reward models of ranked pairs: motif and online_motif."""

    encoder: str = setting(
        "nle_torchbeast_encoder",
        "Encoder of ranking reward models.",
        choices=("nle_torchbeast_encoder",),
        fixed=True,
        flag="reward_encoder",
    )
    subsample: int = setting(
        10,
        "online_motif: pairs are drawn from every n-th observation of a batch.",
        within=COUNT,
        flag="online_dataset_subsample",
    )
    remove_duplicated_obs: bool = setting(False, "online_motif: draw pairs from distinct captions.")


@dataclasses.dataclass(frozen=True)
class RndConfig:
    """Random network distillation: rnd and noveld."""

    features: str = setting(
        "observations",
        "Predicts from observations, or from the policy's encoding of them.",
        choices=("observations", "policy"),
        fixed=True,
        flag="rnd_features",
    )
    output_dim: int = setting(
        128,
        "rnd, noveld: outputs of the random network. BK: 512.",
        within=WIDTH,
        fixed=True,
        flag="rnd_output_dim",
    )
    learning_rate: float = setting(
        1e-4, "rnd, noveld: Adam's step size for the predictor.", within=POSITIVE, flag="rnd_learning_rate"
    )
    update_proportion: float = setting(
        0.25,
        "rnd, noveld: fraction of a batch's observations that it learns from.",
        within="(0, 1]",
        flag="rnd_update_proportion",
    )


@dataclasses.dataclass(frozen=True)
class NovelDConfig:
    """NovelD."""

    alpha: float = setting(
        1.0,
        "noveld: weight of the error before a step. ELLM: 1; NovelD: 0.5.",
        within="(0, 1]",
        flag="noveld_alpha",
    )


@dataclasses.dataclass(frozen=True)
class AptConfig:
    """Active pre-training: apt."""

    output_dim: int = setting(32, "apt: size of an embedding.", within=WIDTH, fixed=True, flag="apt_output_dim")
    neighbours: int = setting(12, "apt: nearest neighbours whose distances pay.", within=COUNT, flag="apt_neighbours")
    particles: int = setting(
        1024,
        "apt: observations of a batch among which neighbours are sought.",
        within="[2, inf)",
        flag="apt_particles",
    )
    learning_rate: float = setting(
        1e-4, "apt: Adam's step size for the embedding.", within=POSITIVE, flag="apt_learning_rate"
    )
    update_proportion: float = setting(
        0.25,
        "apt: fraction of a batch's steps that it learns from.",
        within="(0, 1]",
        flag="apt_update_proportion",
    )


@dataclasses.dataclass(frozen=True)
class PotentialConfig:
    """Potentials: bk-code, bk-pref and bk-goal."""

    horizon: int = setting(
        5,
        "bk-*: earlier steps that a potential sees; bk-goal: 4 of them.",
        aliases=("reward_model_horizon",),
        within="[1, 1000]",
        fixed=True,
        flag="potential_horizon",
    )
    warmup_steps: int = setting(
        50_000,
        "bk-*: environment steps without shaping that set the potential's scale.",
        fixed=True,
        flag="potential_warmup_steps",
    )
    shaping: str = setting(
        "corrected",
        "bk-*: potential-based shaping, or BK's published code's.",
        aliases=("shaping",),
        choices=("corrected", "published"),
        fixed=True,
        flag="potential_shaping",
    )


@dataclasses.dataclass(frozen=True)
class CodeConfig:
    """Potentials in code: bk-code."""

    workers: int = setting(2, "bk-code: processes that call the code.", within="[1, 256]", flag="potential_workers")


@dataclasses.dataclass(frozen=True)
class GoalPotentialConfig:
    """Potentials of goals: bk-goal."""

    threshold: float = setting(
        0.75,
        "bk-goal: cosine up to which the potential is 0. BK: 0.85, with bert-small.",
        aliases=("subgoal_reward_threshold",),
        within="[-1, 1]",
        fixed=True,
        flag="potential_goal_threshold",
    )


@dataclasses.dataclass(frozen=True)
class EmbeddingsConfig:
    """Embeddings of texts: bk-goal and ellm."""

    kind: str = setting(
        "sentences",
        "What compares texts: a sentence encoder, the server's embeddings, word vectors, or counts of words.",
        choices=("sentences", "server", "words", "grams"),
        fixed=True,
        flag="potential_embeddings",
    )
    model: str = setting(
        "",
        "Folder of the encoder (sentences), or name of the model (server).",
        fixed=True,
        flag="potential_embedding_model",
    )


@dataclasses.dataclass(frozen=True)
class RewardConfig:
    """The intrinsic reward."""

    llm_reward_type: str = setting(
        "",
        "Intrinsic reward, or none; several, with commas, add up. Required unless reward_dir is given.",
        fixed=True,
    )
    llm_reward_coeff: float = setting(
        0.0, "Weight of the intrinsic reward; above 0 for every type but none.", aliases=("llm_reward",)
    )
    extrinsic_reward_coeff: float = setting(1.0, "Weight of the environment's reward.", aliases=("extrinsic_reward",))
    llm_reward_value: str = setting(
        "label",
        "Pays the label, 0 or 1, or the probability of helpful (online_cls, online_cls_reward_model).",
        choices=("label", "probability"),
    )
    unanswered: str = setting(
        "nothing",
        "online_cls: a caption without a label pays nothing, or what a classifier says.",
        choices=("nothing", "model"),
        fixed=True,
    )
    classification_threshold: float = setting(
        0.5,
        "Probability above which online_cls_reward_model pays 1, and a yes_no is yes.",
        within="[0, 1]",
    )
    eps_threshold_quantile: str = setting(
        "",
        "Rewards up to it are 0; motif: a quantile (0.5), online_motif: a normalised reward (-0.5), "
        "cosine-bow: a similarity (0).",
    )
    rew_norm: bool = setting(True, "motif, online_motif: normalise and threshold raw scores.")
    reward_dir: str = setting(
        "",
        "What was made before: motif's reward model, bk-*'s code, network or goals, ellm's goal model.",
        aliases=("pretrain_path",),
        fixed=True,
    )
    word_vectors: str = setting("", "A fastText .bin or a word2vec text file (.vec, .txt).")
    captions: CaptionRewardConfig = CaptionRewardConfig()
    model: RewardModelConfig = RewardModelConfig()
    ranking: RankingConfig = RankingConfig()
    rnd: RndConfig = RndConfig()
    noveld: NovelDConfig = NovelDConfig()
    apt: AptConfig = AptConfig()
    potential: PotentialConfig = PotentialConfig()
    bk_code: CodeConfig = CodeConfig()
    bk_goal: GoalPotentialConfig = GoalPotentialConfig()
    embeddings: EmbeddingsConfig = EmbeddingsConfig()
    plugin_sections: tuple[Any, ...] = plugin_sections("RewardConfig")
