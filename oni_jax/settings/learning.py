"""Settings of the policy network, of the learner, and of policies of earlier runs."""

import dataclasses
from typing import Any

from oni_jax.settings.fields import COUNT, DEPTH, POSITIVE, WIDTH, UserError, plugin_sections, setting


@dataclasses.dataclass(frozen=True)
class RgbcropConfig:
    """The encoder nle_rgbcrop_encoder."""

    type: str = setting(
        "conv",
        "Kind of image encoder inside nle_rgbcrop_encoder.",
        choices=("conv", "resnet"),
        fixed=True,
        flag="encoder_type",
    )
    subtype: str = setting(
        "convnet_simple",
        "Image encoder inside nle_rgbcrop_encoder.",
        choices=("convnet_simple", "convnet_impala", "resnet_impala"),
        fixed=True,
        flag="encoder_subtype",
    )
    subtract_mean: float = setting(
        0.0, "Value subtracted from the pixels (0-255).", fixed=True, flag="obs_subtract_mean"
    )
    scale: float = setting(
        1.0,
        "Divisor of the pixels after that. ONI: 1, raw pixels; Motif: 255.",
        within=POSITIVE,
        fixed=True,
        flag="obs_scale",
    )


@dataclasses.dataclass(frozen=True)
class TorchbeastConfig:
    """The encoder nle_torchbeast_encoder, also of reward models."""

    embedding_dim: int = setting(
        128, "Embedding size inside nle_torchbeast_encoder.", within=WIDTH, fixed=True, flag="encoder_embedding_dim"
    )
    hidden_dim: int = setting(
        512, "Output size of nle_torchbeast_encoder.", within=WIDTH, fixed=True, flag="encoder_hidden_dim"
    )
    crop_dim: int = setting(
        16, "Side of the square crop of glyphs around the hero.", within=DEPTH, fixed=True, flag="encoder_crop_dim"
    )
    num_layers: int = setting(
        2, "Convolutional layers over glyphs.", within=DEPTH, fixed=True, flag="encoder_num_layers"
    )
    msg_model: str = setting(
        "lt_cnn",
        "Message network.",
        choices=("lt_cnn", "lt_cnn_small", "none"),
        fixed=True,
        flag="encoder_msg_model",
    )
    use_crop: bool = setting(False, "nle_torchbeast_encoder sees a crop of glyphs (needs use_blstats).", fixed=True)
    use_glyphs: bool = setting(False, "nle_torchbeast_encoder sees the whole map of glyphs.", fixed=True)
    use_blstats: bool = setting(False, "nle_torchbeast_encoder sees the statistics line.", fixed=True)


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The policy network."""

    encoder_custom: str = setting(
        "auto",
        "Encoder of the policy; auto: what fits the environment, or as --init_from; an unknown one lists all.",
        fixed=True,
    )
    image_scale: str = setting(
        "auto",
        "generic_encoder: divisor of an image of integers: each channel's highest value, or 255.",
        choices=("auto", "space", "255"),
        fixed=True,
    )
    hidden_size: int = setting(512, "Width of the image embedding and of the recurrent core.", within=WIDTH, fixed=True)
    use_rnn: bool = setting(True, "Use a recurrent core.", fixed=True)
    rnn_type: str = setting("gru", "Recurrent cell.", choices=("gru", "lstm"), fixed=True)
    rnn_num_layers: int = setting(1, "Recurrent layers.", within=DEPTH, fixed=True)
    nonlinearity: str = setting(
        "elu", "Activation of the policy's encoder.", choices=("elu", "relu", "tanh"), fixed=True
    )
    policy_heads: str = setting(
        "linear",
        "Heads of the policy: a layer each, or two, as BK's.",
        choices=("linear", "bk"),
        fixed=True,
    )
    policy_initialization: str = setting(
        "orthogonal", "Initial weights of the policy.", choices=("orthogonal", "xavier_uniform")
    )
    goal_conditioned: bool = setting(
        False,
        "The policy sees its episode's goal, of several in --goal_key, else its state's open goals.",
        fixed=True,
    )
    goal_input: str = setting(
        "",
        "What a goal_conditioned policy sees: which of --goal_key it is, or the words of --goal_texts.",
        choices=("", "index", "text"),
        fixed=True,
    )
    language_state: bool = setting(
        False,
        "The policy also reads its state's caption.",
        fixed=True,
    )
    precision: str = setting(
        "float32",
        "Precision of the policy's computations; auto: bfloat16 on accelerators, else float32.",
        choices=("float32", "bfloat16", "tf32", "auto"),
    )
    rgbcrop: RgbcropConfig = RgbcropConfig()
    torchbeast: TorchbeastConfig = TorchbeastConfig()
    plugin_sections: tuple[Any, ...] = plugin_sections("NetworkConfig")


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """V-trace, PPO clip, Adam."""

    batch_size: int = setting(1024, "Environment steps of an update, a multiple of rollout; 0: by the machine.")
    rollout: int = setting(32, "Unroll length: steps of a trajectory (T).", within=COUNT)
    recurrence: int = setting(32, "Steps through which gradients flow; must equal rollout.", within=COUNT)
    num_batches_per_iteration: int = setting(1, "Batches collected at a time; only 1 is supported.", within=COUNT)
    ppo_epochs: int = setting(
        1, "Passes over a batch, with the same targets and advantages.",
        within=COUNT,
    )  # fmt: skip
    num_minibatches: int = setting(
        1, "Minibatches of a batch: whole trajectories, shuffled in each pass.",
        within=COUNT,
    )  # fmt: skip
    num_batches_to_accumulate: int = setting(
        1,
        "Batches that may wait for the learner.",
        within=COUNT,
    )
    gamma: float = setting(0.99, "Discount factor of a step.", within="[0, 1]")
    learning_rate: float = setting(1e-4, "Adam's step size.", within=POSITIVE)
    adam_eps: float = setting(1e-6, "Adam's epsilon.", within=POSITIVE)
    adam_beta1: float = setting(0.9, "Adam's first moment decay.", within="[0, 1)")
    adam_beta2: float = setting(0.999, "Adam's second moment decay.", within="[0, 1)")
    max_grad_norm: float = setting(4.0, "Global norm to which gradients are clipped; 0: none.")
    ppo_clip_ratio: float = setting(0.1, "Clip range e: probability ratios within [1/(1+e), 1+e].", within=POSITIVE)
    ppo_clip_value: float = setting(1.0, "Change of a value beyond which its loss is clipped.", within=POSITIVE)
    value_loss_coeff: float = setting(0.5, "Weight of the value loss.")
    exploration_loss: str = setting("entropy", "Exploration term.", choices=("entropy", "symmetric_kl"))
    exploration_loss_coeff: float = setting(0.003, "Weight of the exploration term.")
    with_vtrace: bool = setting(True, "V-trace targets; the only ones supported.")
    vtrace_rho: float = setting(1.0, "V-trace's rho clip threshold.", within=POSITIVE)
    vtrace_c: float = setting(1.0, "V-trace's c clip threshold.", within=POSITIVE)
    gae_lambda: float = setting(1.0, "V-trace's lambda; where the newest policy acted, that of GAE.", within="[0, 1]")
    max_policy_lag: int = setting(1000, "Policy versions from which on samples are masked as too old.", within=COUNT)
    bootstrap: str = setting(
        "value",
        "Bootstrap value: of the observation after the last step, or as published.",
        choices=("value", "published"),
    )
    max_bad_updates: int = setting(
        20, "Updates skipped in a row for NaN or inf, after which the run ends.", within=COUNT
    )
    reward_scale: float = setting(1.0, "Factor of the environment's reward.")
    reward_clip: float = setting(10.0, "Bound of the scaled environment reward's magnitude.", within=POSITIVE)


@dataclasses.dataclass(frozen=True)
class PretrainedConfig:
    """Policies of earlier runs."""

    init_from: str = setting(
        "",
        "Folder of a run whose newest policy this run begins with.",
        fixed=True,
    )
    guide: str = setting(
        "",
        "Folder of a run whose frozen policy acts at some steps.",
    )
    guide_prob: float = setting(0.5, "Probability, at first, that the guide acts at a step.", within="[0, 1]")
    guide_steps: int = setting(0, "Environment steps over which guide_prob falls to 0; 0: it stays.", within="[0, inf)")
    decay_after_reward: bool = setting(False, "guide_prob falls only after the first reward.")
    train_after_reward: bool = setting(False, "The policy learns nothing until the run's rewards add up to 1.")


def check_pretrained(settings: PretrainedConfig) -> None:
    unguided = PretrainedConfig()
    for name in ("guide_steps", "guide_prob"):
        if (value := getattr(settings, name)) != getattr(unguided, name) and not settings.guide:
            raise UserError(f"--{name} {value}: has no meaning without --guide")
    if settings.decay_after_reward and not settings.guide_steps:
        raise UserError("--decay_after_reward: nothing falls; say over how many steps with --guide_steps")


def check_batches(learner: LearnerConfig) -> None:
    if learner.batch_size % learner.rollout:
        raise UserError(
            f"--batch_size {learner.batch_size}: must be a multiple of --rollout {learner.rollout}, "
            f"such as {max(1, learner.batch_size // learner.rollout) * learner.rollout}"
        )
    if learner.recurrence != learner.rollout:
        raise UserError(f"--recurrence {learner.recurrence}: must equal --rollout {learner.rollout}")
    if learner.num_batches_per_iteration != 1:
        number = learner.num_batches_per_iteration
        raise UserError(f"--num_batches_per_iteration {number}: only 1 is supported; see --num_minibatches")
    if learner.bootstrap == "published" and not learner.gamma:
        raise UserError("--bootstrap published: divides by --gamma, which is 0; leave one of them out")
    if not learner.with_vtrace:
        raise UserError(
            "--with_vtrace false: leave V-trace on; where the newest policy acted, --gae_lambda makes it GAE"
        )


def check_batch_size(learner: LearnerConfig, num_devices: int) -> None:
    """Raises UserError: a batch can't be sharded evenly over the `num_devices` that learn, of all processes."""
    num_trajectories = learner.batch_size // learner.rollout
    if num_trajectories % num_devices:
        raise UserError(
            f"--batch_size {learner.batch_size}: {num_trajectories} trajectories of --rollout {learner.rollout} can't "
            f"be sharded evenly over {num_devices} devices; give a multiple of {num_devices * learner.rollout}, or "
            "change --learner_devices"
        )
    if (num_local := num_trajectories // num_devices) % learner.num_minibatches:
        raise UserError(
            f"--num_minibatches {learner.num_minibatches}: can't split the {num_local} trajectories of each device; "
            f"give a divisor of {num_local}"
        )


def check_network(network: NetworkConfig) -> None:
    """Raises UserError: an encoder lacks an input that it needs."""
    if network.torchbeast.use_crop and not network.torchbeast.use_blstats:
        raise UserError("--use_crop needs --use_blstats, which holds the hero's position")


def as_network(encoder_custom: str, hidden_size: int) -> NetworkConfig:
    """Returns the settings of a potential's encoder."""
    return NetworkConfig(encoder_custom=encoder_custom, hidden_size=hidden_size)
