"""Every setting of a run: its name, default, help text and checks, written once.

The launchers make one flag of each field; the rest of the program receives the frozen part it needs.
Names and defaults are those of the published systems where they have them.
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any


class UserError(Exception):
    """Bad input of the user's. Its text is one line: what is wrong, and what to do. Launchers exit with code 2."""


def _setting(default: Any, text: str, *, aliases: Sequence[str] = (), choices: Sequence[str] = ()) -> Any:
    return dataclasses.field(
        default=default, metadata={"help": text, "aliases": tuple(aliases), "choices": tuple(choices)}
    )


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """The game."""

    root_env: str = _setting("NetHackScore-v1", "Task id; an unknown one lists them all.")
    max_episode_steps: int = _setting(5000, "Steps after which an episode is cut off (a truncation).")


@dataclasses.dataclass(frozen=True)
class ActorConfig:
    """The processes that play."""

    num_workers: int = _setting(0, "Actor processes; 0 means one a CPU core.")
    num_envs_per_worker: int = _setting(20, "Games in each actor process.")
    worker_num_splits: int = _setting(2, "Groups of games in a process: one group steps while another waits.")
    actor_pool: str = _setting(
        "process", "Where games run: processes, or this process one after another.", choices=("process", "serial")
    )


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The policy network."""

    encoder_custom: str = _setting(
        "nle_rgbcrop_encoder",
        "Observation encoder of the policy.",
        choices=("nle_rgbcrop_encoder", "nle_torchbeast_encoder", "mlp_encoder"),
    )
    encoder_type: str = _setting(
        "conv", "Kind of image encoder inside nle_rgbcrop_encoder.", choices=("conv", "resnet")
    )
    encoder_subtype: str = _setting(
        "convnet_simple",
        "Image encoder inside nle_rgbcrop_encoder.",
        choices=("convnet_simple", "convnet_impala", "resnet_impala"),
    )
    hidden_size: int = _setting(512, "Width of the image embedding and of the recurrent core.")
    use_rnn: bool = _setting(True, "Recurrent core, or none.")
    rnn_type: str = _setting("gru", "Recurrent cell.", choices=("gru", "lstm"))
    rnn_num_layers: int = _setting(1, "Recurrent layers.")
    nonlinearity: str = _setting("elu", "Activation of nle_rgbcrop_encoder.", choices=("elu", "relu", "tanh"))
    policy_initialization: str = _setting(
        "orthogonal", "Initial weights of the policy.", choices=("orthogonal", "xavier_uniform")
    )
    obs_subtract_mean: float = _setting(0.0, "Subtracted from the pixels (0-255).")
    obs_scale: float = _setting(255.0, "The pixels are then divided by this.")
    encoder_embedding_dim: int = _setting(128, "Embedding size inside nle_torchbeast_encoder.")
    encoder_hidden_dim: int = _setting(512, "Output size of nle_torchbeast_encoder.")
    encoder_crop_dim: int = _setting(16, "Side of the square of glyphs cut out around the hero.")
    encoder_num_layers: int = _setting(2, "Convolutions over glyphs.")
    encoder_msg_model: str = _setting("lt_cnn", "Message network.", choices=("lt_cnn", "lt_cnn_small", "none"))
    use_crop: bool = _setting(False, "nle_torchbeast_encoder sees the glyphs around the hero (needs use_blstats).")
    use_glyphs: bool = _setting(False, "nle_torchbeast_encoder sees the whole map of glyphs.")
    use_blstats: bool = _setting(False, "nle_torchbeast_encoder sees the statistics line.")


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """V-trace, PPO clip, Adam."""

    batch_size: int = _setting(1024, "Environment steps in an update; a multiple of rollout.")
    rollout: int = _setting(32, "Steps of a trajectory (T).")
    recurrence: int = _setting(32, "Steps through which gradients flow; must equal rollout.")
    num_batches_per_iteration: int = _setting(1, "Batches collected at a time; only 1 is offered.")
    ppo_epochs: int = _setting(1, "Passes over a batch; only 1 is offered.")
    num_batches_to_accumulate: int = _setting(2, "Batches that may wait for the learner before the games pause.")
    gamma: float = _setting(0.99, "Discount a step.")
    learning_rate: float = _setting(1e-4, "Adam's step size.")
    adam_eps: float = _setting(1e-6, "Adam's epsilon.")
    adam_beta1: float = _setting(0.9, "Adam's first moment decay.")
    adam_beta2: float = _setting(0.999, "Adam's second moment decay.")
    max_grad_norm: float = _setting(4.0, "Global norm to which gradients are clipped; 0 turns clipping off.")
    ppo_clip_ratio: float = _setting(0.1, "Clip range e: probability ratios within [1/(1+e), 1+e].")
    ppo_clip_value: float = _setting(1.0, "Largest change of a value before its loss stops pulling.")
    value_loss_coeff: float = _setting(0.5, "Weight of the value loss.")
    exploration_loss: str = _setting("entropy", "Exploration term.", choices=("entropy", "symmetric_kl"))
    exploration_loss_coeff: float = _setting(0.003, "Weight of the exploration term.")
    with_vtrace: bool = _setting(True, "V-trace targets; the only ones offered.")
    vtrace_rho: float = _setting(1.0, "V-trace's rho clip threshold.")
    vtrace_c: float = _setting(1.0, "V-trace's c clip threshold.")
    max_policy_lag: int = _setting(1000, "Samples this many policy versions old, or more, are not learnt from.")
    bootstrap: str = _setting(
        "value",
        "Value after a trajectory's last step: of the next observation, or the published stand-in.",
        choices=("value", "published"),
    )
    reward_scale: float = _setting(1.0, "Factor of the environment's reward.")
    reward_clip: float = _setting(10.0, "Bound of the scaled environment reward.")


@dataclasses.dataclass(frozen=True)
class RewardConfig:
    """The intrinsic reward."""

    llm_reward_type: str = _setting("", "Intrinsic reward; must be given. `none`: the environment's reward alone.")
    llm_reward_coeff: float = _setting(
        0.0, "Weight of the intrinsic reward; above 0 for every type but none.", aliases=("llm_reward",)
    )
    extrinsic_reward_coeff: float = _setting(
        1.0, "Weight of the environment's reward.", aliases=("extrinsic_reward",)
    )
    beta_count_exponent: float = _setting(3.0, "A message seen n times in an episode has its reward divided by n^this.")
    intrinsic_reward_at: str = _setting(
        "obs",
        "Message that step t is rewarded for: of the observation before its action, or the one it caused.",
        choices=("obs", "next_obs"),
    )


@dataclasses.dataclass(frozen=True)
class AnnotationConfig:
    """The LLM server, and how it is asked."""

    llm_server_addr: str = _setting(
        "", "host, host:port (9001 when left out) or http(s) URL; empty: a rule-based judge is started here."
    )
    llm_api_key: str = _setting("", "Key for the server; read from $OPENAI_API_KEY when empty.")
    llm_model: str = _setting("Meta-Llama-3.1-8B-Instruct", "Model asked for.")
    llm_api: str = _setting("chat", "Endpoint: one message a request, or lists of prompts.", choices=("chat", "completions"))
    llm_chat_template: str = _setting("llama3", "For completions: llama3, none, or a file holding {system} and {user}.")
    llm_answer: str = _setting(
        "reasoned", "Knowledge, analysis and label in tags, or one label token.", choices=("reasoned", "label")
    )
    llm_constraint: str = _setting(
        "none",
        "How this server restricts an answer to the labels.",
        choices=("none", "vllm", "sglang", "llamacpp", "json_schema"),
    )
    llm_batch_size: int = _setting(100, "Messages taken up at a time; prompts in a list.")
    llm_max_in_flight: int = _setting(16, "Requests open at once.")
    llm_max_backlog: int = _setting(10000, "Messages that may wait; the oldest beyond it are dropped and counted.")
    llm_temperature: float = _setting(0.1, "Sampling temperature.")
    llm_max_tokens: int = _setting(4096, "Longest answer, in tokens.")
    llm_timeout_secs: float = _setting(120.0, "Time after which a request is given up and tried again.")
    llm_max_retries: int = _setting(5, "Times a failing message is asked again before it is put aside.")
    llm_required: bool = _setting(False, "End at once when no server answers at the start.")
    prompt_version: str = _setting("default", "Wording of the prompt.", choices=("default", "reworded"))
    goal_key: str = _setting(
        "defaultgoal",
        "What the judge is told to prefer.",
        choices=("defaultgoal", "zeroknowledge", "combat", "gold", "stairs"),
    )
    prompt_file: str = _setting("", "A prompt of your own, in the form of oni_jax/annotation/prompts/*.json.")
    label_store: str = _setting("", "SQLite file of labels; empty: <train_dir>/<experiment>/labels.sqlite.")


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Where a run lives, how long it goes, what it writes."""

    train_dir: str = _setting("./train_dir", "Folder of experiments.")
    experiment: str = _setting("default_experiment", "Name of this run's folder; an existing run is resumed.")
    seed: int = _setting(1, "Seed of networks, sampling and games.")
    train_for_env_steps: int = _setting(10_000_000_000, "Environment steps after which the run ends.")
    train_for_seconds: float = _setting(1e10, "Seconds after which the run ends.")
    save_every_sec: float = _setting(120.0, "Seconds between checkpoints; 0 turns them off.")
    save_every_steps: int = _setting(0, "Environment steps between checkpoints; 0 turns them off.")
    keep_checkpoints: int = _setting(3, "Newest checkpoints kept.")
    save_milestones_sec: float = _setting(0.0, "Seconds between checkpoints kept for ever; 0 turns them off.")
    stats_avg: int = _setting(100, "Episodes over which statistics are averaged.")
    log_every_sec: float = _setting(5.0, "Seconds between rows of metrics.")
    wandb: bool = _setting(False, "Log to Weights & Biases.")
    wandb_entity: str = _setting("", "Weights & Biases entity.")
    wandb_proj: str = _setting("", "Weights & Biases project.")


@dataclasses.dataclass(frozen=True)
class Config:
    env: EnvConfig = EnvConfig()
    actors: ActorConfig = ActorConfig()
    network: NetworkConfig = NetworkConfig()
    learner: LearnerConfig = LearnerConfig()
    reward: RewardConfig = RewardConfig()
    annotation: AnnotationConfig = AnnotationConfig()
    run: RunConfig = RunConfig()
