"""Settings of a run: name, default, help text, range and checks of each, written once.

The launchers make a flag of each field; the rest of the program receives the frozen section it needs.
Names and defaults are those of the published systems where they have them.
"""

import dataclasses
import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

Program = TypeVar("Program")  # a frozen dataclass of sections, such as Config


class UserError(Exception):
    """Bad input. The text is one line: what is wrong, and what to do. Launchers exit with code 2."""


def nearest(word: str, known: Iterable[str], written: str = "") -> str:
    """Returns "; did you mean WRITTEN...?" with the known word that is most like this one; empty without any."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_lower, 1)
    return f"; did you mean {written}{by_lower[near[0]]}?" if near else ""


_COUNT = "[1, inf)"
_POSITIVE = "(0, inf)"


def setting(
    default: Any,
    text: str,
    *,
    aliases: Sequence[str] = (),
    choices: Sequence[str] = (),
    within: str = "[0, inf)",
    fixed: bool = False,
    secret: bool = False,
    positional: bool = False,
    repeated: str = "",
) -> Any:
    """Makes a dataclass field that becomes a flag.

    Args:
        default: also gives the type: int, float, bool or str.
        text: help, one sentence.
        aliases: other names of the flag.
        choices: values allowed for a str.
        within: interval allowed for a number.
        fixed: can't change when a run is resumed (its parameters would not fit, or were learnt for another value).
        secret: never printed or written.
        positional: a str of the command line's positional arguments, joined by commas.
        repeated: joins the values of a str whose flag may be given several times; empty: the last value holds.
    """
    metadata = {"help": text, "aliases": tuple(aliases), "choices": tuple(choices), "within": within, "fixed": fixed}
    metadata |= {"secret": secret, "positional": positional, "repeated": repeated}
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


@dataclasses.dataclass(frozen=True)
class NetHackConfig:
    """NetHack's own settings."""

    view: str = setting(
        "terminal",
        "Source of NetHack's window of characters: the terminal with its menus, or the map alone, which is faster.",
        choices=("terminal", "map"),
    )
    share_code: bool = setting(True, "Games of a process use one copy of NetHack's code where possible: faster.")
    stepper: str = setting(
        "auto",
        "What steps NetHack's games: auto: the C extension where it is built and knows this NLE and this system, else "
        "Python; the games are the same.",
        choices=("auto", "python"),
    )


@dataclasses.dataclass(frozen=True)
class BabyAIConfig:
    """BabyAI-Text's own settings."""

    babyai_size: int = setting(
        0, "Side of BabyAI-Text's room, its walls included; 0: the level's own.", within="[0, 64]", fixed=True
    )
    babyai_num_distractors: int = setting(
        -1, "Objects beside BabyAI-Text's targets; -1: the level's own.", within="[-1, 1000]", fixed=True
    )


@dataclasses.dataclass(frozen=True)
class CrafterConfig:
    """Crafter's own settings."""

    crafter_actions: str = setting(
        "",
        "ELLM's actions: harder, 139, or easier, 27; empty: the task's own.",
        choices=("", "harder", "easier"),
        fixed=True,
    )
    crafter_length: int = setting(0, "Steps of an episode of Crafter; 0: the task's own.", fixed=True)
    crafter_dying: str = setting(
        "", "Whether an episode of Crafter ends without health; empty: the task's own.", choices=("", "on", "off")
    )
    crafter_task: str = setting(
        "",
        "What pays in Crafter instead of its own reward: a goal, such as `attack cow`, or several in an order, such as "
        "`deforestation`; empty: the world's own reward.",
    )
    crafter_subgoals: str = setting(
        "hidden",
        "Goals on the way to --crafter_task: not needed, unless the task consists of them (hidden); to be reached in "
        "their order, one at a time, which a goal_conditioned policy sees (shown); or each of them pays, too (paid).",
        choices=("hidden", "shown", "paid"),
    )
    crafter_task_repeats: bool = setting(
        False, "As published: an episode goes on when --crafter_task is solved, and its last goal pays again."
    )
    crafter_view: str = setting(
        "tiles",
        "What a policy sees of Crafter: numbers of the cells, and a vector of the rest (tiles); pictures of 64 x 64 "
        "pixels (rgb); or ELLM's, the last 4 of 84 x 84 in grey (grey).",
        choices=("tiles", "rgb", "grey"),
        fixed=True,
    )
    crafter_textures: str = setting(
        "plain",
        "Of Crafter's pictures: ours, or the published ones, which the extra [crafter] installs.",
        choices=("plain", "published"),
        fixed=True,
    )
    crafter_maps: str = setting(
        "auto",
        "Crafter's maps: from a stock, made once and kept on disk, or each episode's own, made when it begins; auto: a "
        "stock on accelerators, their own elsewhere, as in evaluation.",
        choices=("auto", "stock", "exact"),
    )
    crafter_map_stock: int = setting(4096, "Maps in Crafter's stock.", within="[1, 65536]")


@dataclasses.dataclass(frozen=True)
class GoalConfig:
    """Goals that are suggested for an environment's states."""

    goal_suggester: str = setting(
        "auto",
        "Who suggests goals for a state: an LLM by its caption, what its prerequisites allow (oracle), --crafter_task, "
        "all goals, or some at random; auto: none unless a reward is ellm or the policy is goal_conditioned; then the "
        "task, or an LLM where ellm has an --llm_server_addr, else the oracle.",
        choices=("auto", "none", "llm", "oracle", "task", "all", "random"),
        fixed=True,
    )
    goal_success: str = setting(
        "strict",
        "What reaches a goal: an action that took effect; loose: also one that names what is faced or owned, as "
        "published; tried: any action of that name.",
        choices=("strict", "loose", "tried"),
        fixed=True,
    )
    goal_repeats: bool = setting(False, "A goal pays each time, not once an episode.", fixed=True)
    goal_count: int = setting(5, "Goals suggested for a state at random.", within=_COUNT, fixed=True)
    goal_parser: str = setting(
        "tolerant",
        "Reads the goals in an LLM's answer: lists of any form, or only lines that begin with a dash, as published.",
        choices=("tolerant", "strict"),
        fixed=True,
    )
    goal_similarity: str = setting(
        "exact",
        "A goal is suggested by its own words, or by any that mean nearly the same (embeddings, those of "
        "--potential_embeddings).",
        choices=("exact", "embeddings"),
        fixed=True,
    )
    goal_threshold: float = setting(
        0.99,
        "Cosine of embeddings above which words suggest a goal; reaching it pays that cosine.",
        within="[0, 1]",
        fixed=True,
    )
    goal_table_size: int = setting(
        32768,
        "Captions whose suggested goals the device holds; beyond, the oldest give way.",
        within=_COUNT,
        fixed=True,
    )


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """The environment."""

    root_env: str = setting("NetHackScore-v1", "Task id; an unknown one lists them all.")
    max_episode_steps: int = setting(5000, "Steps after which an episode is truncated.", within=_COUNT)
    plugin: str = setting(
        "", "Module that registers your environments, encoders or rewards; may be given several times.", repeated=","
    )
    caption: str = setting(
        "auto",
        "Captions: of the state, or of what the last action did (event); auto: event in Crafter where all rewards are "
        "online_… or count, else state.",
        choices=("auto", "state", "event"),
        fixed=True,
    )
    nethack: NetHackConfig = NetHackConfig()
    babyai: BabyAIConfig = BabyAIConfig()
    crafter: CrafterConfig = CrafterConfig()
    goals: GoalConfig = GoalConfig()


@dataclasses.dataclass(frozen=True)
class ActorConfig:
    """Actor processes and their environments."""

    num_workers: int = setting(0, "Actor processes; 0: one per CPU core.", within="[0, 1024]")
    num_envs_per_worker: int = setting(
        20, "Environments in each actor process, a multiple of worker_num_splits; 0: what suits the machine."
    )
    worker_num_splits: int = setting(
        2, "Groups of environments in a process: one steps while another waits for actions.", within=_COUNT
    )
    actor_pool: str = setting(
        "auto",
        "Run environments in actor processes, or one by one in this process; auto: in processes, but those made for "
        "accelerators on the learner's, batch_size / rollout of them.",
        choices=("auto", "process", "serial"),
    )
    max_actor_restarts: int = setting(
        10, "Actor processes that may be replaced within ten minutes; one more ends the run.", within="[0, inf]"
    )


@dataclasses.dataclass(frozen=True)
class DevicesConfig:
    """Accelerators and processes of a run."""

    learner_devices: int = setting(
        0, "Accelerators of each process that learn, counted from the first; 0: all. A batch is sharded evenly."
    )
    inference_devices: int = setting(
        0, "Accelerators of each process that act, counted from the last; 0: all, shared with learning."
    )
    cpu_devices: int = setting(
        1,
        "Devices that a CPU without an accelerator counts as. Environments on the device run on a core each: 2 on two "
        "cores train up to twice as fast.",
        within="[1, 256]",
    )
    coordinator_address: str = setting("", "host:port of process 0, reachable by all; empty: taken from Slurm.")
    num_processes: int = setting(
        0, "Processes of this run; 0: the number of tasks of Slurm's step, 1 elsewhere.", within="[0, 65536]"
    )
    process_id: int = setting(-1, "Index of this process, from 0; -1: taken from Slurm.", within="[-1, 65536)")


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The policy network."""

    encoder_custom: str = setting(
        "nle_rgbcrop_encoder",
        "Observation encoder of the policy; an unknown one lists them all. generic_encoder reads any environment.",
        fixed=True,
    )
    encoder_type: str = setting(
        "conv", "Kind of image encoder inside nle_rgbcrop_encoder.", choices=("conv", "resnet"), fixed=True
    )
    encoder_subtype: str = setting(
        "convnet_simple",
        "Image encoder inside nle_rgbcrop_encoder.",
        choices=("convnet_simple", "convnet_impala", "resnet_impala"),
        fixed=True,
    )
    hidden_size: int = setting(
        512, "Width of the image embedding and of the recurrent core.", within=_COUNT, fixed=True
    )
    use_rnn: bool = setting(True, "Use a recurrent core.", fixed=True)
    rnn_type: str = setting("gru", "Recurrent cell.", choices=("gru", "lstm"), fixed=True)
    rnn_num_layers: int = setting(1, "Recurrent layers.", within=_COUNT, fixed=True)
    nonlinearity: str = setting(
        "elu", "Activation of the policy's encoder.", choices=("elu", "relu", "tanh"), fixed=True
    )
    policy_heads: str = setting(
        "linear",
        "Heads of the policy: a layer each, or BK's, with a hidden layer each.",
        choices=("linear", "bk"),
        fixed=True,
    )
    policy_initialization: str = setting(
        "orthogonal", "Initial weights of the policy.", choices=("orthogonal", "xavier_uniform")
    )
    obs_subtract_mean: float = setting(0.0, "Value subtracted from the pixels (0-255).", fixed=True)
    obs_scale: float = setting(
        1.0, "Divisor of the pixels after that. ONI: 1, raw pixels; Motif: 255.", within=_POSITIVE, fixed=True
    )
    encoder_embedding_dim: int = setting(
        128, "Embedding size inside nle_torchbeast_encoder.", within=_COUNT, fixed=True
    )
    encoder_hidden_dim: int = setting(512, "Output size of nle_torchbeast_encoder.", within=_COUNT, fixed=True)
    encoder_crop_dim: int = setting(16, "Side of the square crop of glyphs around the hero.", within=_COUNT, fixed=True)
    encoder_num_layers: int = setting(2, "Convolutional layers over glyphs.", within=_COUNT, fixed=True)
    encoder_msg_model: str = setting(
        "lt_cnn", "Message network.", choices=("lt_cnn", "lt_cnn_small", "none"), fixed=True
    )
    use_crop: bool = setting(
        False, "nle_torchbeast_encoder sees the glyphs around the hero (needs use_blstats).", fixed=True
    )
    use_glyphs: bool = setting(False, "nle_torchbeast_encoder sees the whole map of glyphs.", fixed=True)
    use_blstats: bool = setting(False, "nle_torchbeast_encoder sees the statistics line.", fixed=True)
    goal_conditioned: bool = setting(False, "The policy sees the open goals of its state.", fixed=True)
    language_state: bool = setting(
        False,
        "The policy also reads the caption of its state: the text by a message network; of an environment on an "
        "accelerator, the bits that stand for it.",
        fixed=True,
    )
    precision: str = setting(
        "float32",
        "Precision of the policy's computations; its parameters, state and losses are float32. auto: bfloat16 on "
        "accelerators, float32 elsewhere.",
        choices=("float32", "bfloat16", "tf32", "auto"),
    )


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """V-trace, PPO clip, Adam."""

    batch_size: int = setting(
        1024, "Environment steps per update, over all processes; a multiple of rollout; 0: what suits the machine."
    )
    rollout: int = setting(32, "Unroll length: steps of a trajectory (T).", within=_COUNT)
    recurrence: int = setting(32, "Steps through which gradients flow; must equal rollout.", within=_COUNT)
    num_batches_per_iteration: int = setting(1, "Batches collected at a time; only 1 is supported.", within=_COUNT)
    ppo_epochs: int = setting(
        1, "Passes over a batch. Of several, and of minibatches, value targets and advantages are computed once.",
        within=_COUNT,
    )  # fmt: skip
    num_minibatches: int = setting(
        1, "Minibatches of a batch: whole trajectories, shuffled again in each pass, within each device's shard.",
        within=_COUNT,
    )  # fmt: skip
    num_batches_to_accumulate: int = setting(
        1,
        "Batches that may wait for the learner, beside the one that it learns from; then the environments pause. At "
        "least one group's trajectories may wait, and unrolls that end at that moment are added to them.",
        within=_COUNT,
    )
    gamma: float = setting(0.99, "Discount factor of a step.", within="[0, 1]")
    learning_rate: float = setting(1e-4, "Adam's step size.", within=_POSITIVE)
    adam_eps: float = setting(1e-6, "Adam's epsilon.", within=_POSITIVE)
    adam_beta1: float = setting(0.9, "Adam's first moment decay.", within="[0, 1)")
    adam_beta2: float = setting(0.999, "Adam's second moment decay.", within="[0, 1)")
    max_grad_norm: float = setting(4.0, "Global norm to which gradients are clipped; 0 turns clipping off.")
    ppo_clip_ratio: float = setting(0.1, "Clip range e: probability ratios within [1/(1+e), 1+e].", within=_POSITIVE)
    ppo_clip_value: float = setting(1.0, "Change of a value beyond which its loss is clipped.", within=_POSITIVE)
    value_loss_coeff: float = setting(0.5, "Weight of the value loss.")
    exploration_loss: str = setting("entropy", "Exploration term.", choices=("entropy", "symmetric_kl"))
    exploration_loss_coeff: float = setting(0.003, "Weight of the exploration term.")
    with_vtrace: bool = setting(True, "V-trace targets; the only ones supported.")
    vtrace_rho: float = setting(1.0, "V-trace's rho clip threshold.", within=_POSITIVE)
    vtrace_c: float = setting(1.0, "V-trace's c clip threshold.", within=_POSITIVE)
    gae_lambda: float = setting(
        1.0, "V-trace's lambda, a factor of its traces; where the newest policy acted, that of GAE.", within="[0, 1]"
    )
    max_policy_lag: int = setting(
        1000, "Samples at least this many policy versions old are masked out of the loss.", within=_COUNT
    )
    bootstrap: str = setting(
        "value",
        "Bootstrap value: of the observation after the last step, or the published system's stand-in.",
        choices=("value", "published"),
    )
    max_bad_updates: int = setting(
        20, "Updates skipped in a row, for NaN or inf in loss or gradients, after which the run ends.", within=_COUNT
    )
    reward_scale: float = setting(1.0, "Factor of the environment's reward.")
    reward_clip: float = setting(10.0, "Bound of the scaled environment reward's magnitude.", within=_POSITIVE)


@dataclasses.dataclass(frozen=True)
class RewardConfig:
    """The intrinsic reward."""

    llm_reward_type: str = setting(
        "",
        "Intrinsic reward; required unless reward_dir is given. `none`: the environment's reward alone. Several, with "
        "commas between them, add up; other settings of reward and annotation then take one value, or one for each.",
        fixed=True,
    )
    llm_reward_coeff: float = setting(
        0.0, "Weight of the intrinsic reward; above 0 for every type but none.", aliases=("llm_reward",)
    )
    extrinsic_reward_coeff: float = setting(1.0, "Weight of the environment's reward.", aliases=("extrinsic_reward",))
    beta_count_exponent: float = setting(
        3.0, "Episodic count bonus: a caption seen n times in an episode has its reward divided by n^this."
    )
    intrinsic_reward_at: str = setting(
        "obs",
        "Caption that step t is rewarded for: of the observation before its action, or of the one it caused.",
        choices=("obs", "next_obs"),
    )
    llm_reward_value: str = setting(
        "label",
        "online_cls and online_cls_reward_model: reward a caption by its label, 0 or 1, or its probability of helpful.",
        choices=("label", "probability"),
    )
    classification_threshold: float = setting(
        0.5,
        "online_cls_reward_model: the reward is 1 above this probability of being helpful. Rewards of your own that "
        "ask yes_no: an answer is yes above this probability.",
        within="[0, 1]",
    )
    eps_threshold_quantile: str = setting(
        "",
        "Threshold: rewards not above it are 0. motif: a quantile of its training rewards (0.05, 0.1, ..., 0.95; 0.5 "
        "when empty); online_motif: a normalised reward (-0.5); cosine-bow: a similarity (0).",
    )
    rew_norm: bool = setting(True, "motif and online_motif: normalise and threshold the reward model's raw scores.")
    reward_dir: str = setting(
        "",
        "motif: folder that launch.train_reward wrote; implies --llm_reward_type motif. bk-code: file of code, or its "
        "folder. bk-goal: folder of goals.",
        aliases=("pretrain_path",),
        fixed=True,
    )
    word_vectors: str = setting(
        "", "cosine-bow, and bk-goal by words: word vectors, a fastText .bin or a word2vec text file (.vec, .txt)."
    )
    reward_encoder: str = setting(
        "nle_torchbeast_encoder",
        "Observation encoder of the ranking reward models; its parts are those of the policy's.",
        choices=("nle_torchbeast_encoder",),
        fixed=True,
    )
    reward_model_lr: float = setting(1e-4, "Adam's step size for a reward model.", within=_POSITIVE)
    reward_model_batch_size: int = setting(256, "Captions, or pairs, in a reward model's gradient step.", within=_COUNT)
    reward_model_gradient_steps_per_update: int = setting(
        32, "Gradient steps of a reward model each time that labels come, while few are held.", within=_COUNT
    )
    reward_model_few_labels: int = setting(
        25_000, "Labels, or pairs, from which on a reward model makes one gradient step per update instead."
    )
    reward_dataset_size: int = setting(
        262_144, "Labels, or pairs, held for a reward model; the oldest are replaced.", within=_COUNT
    )
    online_dataset_subsample: int = setting(
        10, "online_motif: pairs are drawn from every n-th observation of a batch.", within=_COUNT
    )
    remove_duplicated_obs: bool = setting(False, "online_motif: deduplicate a batch's captions before drawing pairs.")
    rnd_features: str = setting(
        "observations",
        "rnd and noveld: predict a random network of the normalised observations, or of the policy's encoding of them.",
        choices=("observations", "policy"),
        fixed=True,
    )
    rnd_output_dim: int = setting(
        128, "rnd and noveld: outputs of the random network. BK: 512.", within=_COUNT, fixed=True
    )
    rnd_learning_rate: float = setting(1e-4, "rnd and noveld: Adam's step size for the predictor.", within=_POSITIVE)
    rnd_update_proportion: float = setting(
        0.25, "rnd and noveld: fraction of a batch's observations that the predictor learns from.", within="(0, 1]"
    )
    noveld_alpha: float = setting(
        1.0,
        "noveld: weight of the error before a step, which is taken from the one after it. ELLM: 1; NovelD: 0.5.",
        within="(0, 1]",
    )
    apt_output_dim: int = setting(32, "apt: size of an embedding.", within=_COUNT, fixed=True)
    apt_neighbours: int = setting(12, "apt: nearest neighbours whose distances pay.", within=_COUNT)
    apt_particles: int = setting(
        1024, "apt: observations of a batch, drawn at random, among which neighbours are sought.", within="[2, inf)"
    )
    apt_learning_rate: float = setting(1e-4, "apt: Adam's step size for the embedding.", within=_POSITIVE)
    apt_update_proportion: float = setting(
        0.25, "apt: fraction of a batch's steps that the embedding learns from.", within="(0, 1]"
    )
    potential_horizon: int = setting(
        5,
        "bk-*: steps before the present one that a potential sees; bk-goal reads 4 of them.",
        aliases=("reward_model_horizon",),
        within="[1, 1000]",
        fixed=True,
    )
    potential_warmup_steps: int = setting(
        50_000,
        "bk-*: environment steps from which the potential's scale is taken; until then shaping pays nothing.",
        fixed=True,
    )
    potential_shaping: str = setting(
        "corrected",
        "bk-*: potential-based shaping, or as BK's published code does it: late, and across the ends of episodes.",
        aliases=("shaping",),
        choices=("corrected", "published"),
        fixed=True,
    )
    potential_workers: int = setting(2, "bk-code: processes that call the code.", within="[1, 256]")
    potential_embeddings: str = setting(
        "sentences",
        "bk-goal: what compares texts: a sentence encoder, the LLM server's /v1/embeddings, word vectors, or counts of "
        "words and pairs of words, which know no meaning.",
        choices=("sentences", "server", "words", "grams"),
        fixed=True,
    )
    potential_embedding_model: str = setting(
        "",
        "bk-goal: the encoder's folder (sentences), or the model's name (server); empty: the package's, or llm_model.",
        fixed=True,
    )
    potential_goal_threshold: float = setting(
        0.75,
        "bk-goal: a step whose cosine to a goal is not above it has the potential 0. BK: 0.85, with bert-small, whose "
        "cosines are larger.",
        aliases=("subgoal_reward_threshold",),
        within="[-1, 1]",
        fixed=True,
    )


@dataclasses.dataclass(frozen=True)
class AnnotationConfig:
    """The LLM server, its requests and its prompts."""

    llm_server_addr: str = setting(
        "", "host, host:port (default port: 9001) or http(s) URL; empty: a rule-based judge is started here."
    )
    llm_api_key: str = setting(
        "",
        "Location of the server's key: env:NAME, or file:PATH (its first line); empty: $OPENAI_API_KEY.",
        secret=True,
    )
    llm_model: str = setting("Meta-Llama-3.1-8B-Instruct", "Name of the model, as the server knows it.")
    llm_api: str = setting(
        "chat", "Endpoint: one prompt per request, or lists of prompts.", choices=("chat", "completions")
    )
    llm_api_version: str = setting(
        "",
        "Azure OpenAI: version of its API, such as 2024-10-21. The key then goes into an api-key header, and llm_model "
        "names the deployment.",
    )
    llm_chat_template: str = setting("llama3", "For completions: llama3, none, or a file holding {system} and {user}.")
    llm_answer: str = setting(
        "reasoned", "Answer with knowledge, analysis and label in tags, or one token.", choices=("reasoned", "label")
    )
    llm_constraint: str = setting(
        "none",
        "The server's syntax for constraining an answer to the labels.",
        choices=("none", "vllm", "sglang", "llamacpp", "json_schema"),
    )
    llm_batch_size: int = setting(
        100, "Most prompts in a request of completions, and answers in a commit to the label store.", within=_COUNT
    )
    llm_max_in_flight: int = setting(16, "Most requests in flight, for each reward type that asks.", within=_COUNT)
    llm_max_per_sec: float = setting(
        0.0,
        "Most prompts sent in a second, for each reward type that asks; 0: as many as the server answers, but 100 to "
        "the rule-based judge where environments run on the CPU beside it.",
        within="[0, inf)",
    )
    llm_max_backlog: int = setting(
        10000, "Most pending queries; the oldest beyond it are dropped and counted.", within=_COUNT
    )
    llm_temperature: float = setting(0.1, "Sampling temperature.")
    llm_max_tokens: int = setting(4096, "Longest answer, in tokens.", within=_COUNT)
    llm_timeout_secs: float = setting(120.0, "Time-out of a request, which is then retried.", within=_POSITIVE)
    llm_max_retries: int = setting(5, "Retries of a failing query before it is put aside.")
    llm_max_labels: int = setting(
        0, "Most answers that are held for a model and a prompt; then no more are asked for. 0: no limit."
    )
    llm_required: bool = setting(False, "End at once when no server answers at the start.")
    prompt_version: str = setting("default", "Wording of the prompt.", choices=("default", "reworded"))
    goal_key: str = setting(
        "defaultgoal",
        "Goal in the prompt that captions are judged by.",
        choices=("defaultgoal", "zeroknowledge", "combat", "gold", "stairs"),
    )
    goal: str = setting("", "The player's goal in your own words; replaces goal_key's.")
    prompt_file: str = setting("", "Your own prompt, in the format of oni_jax/envs/nethack/prompts/*.json.")
    judge_wrong_fraction: float = setting(
        0.0,
        "Fraction of its items that the embedded judge answers wrongly: the same ones each time.",
        within="[0, 1]",
    )
    judge_wrong_seed: int = setting(0, "Which of its items the embedded judge answers wrongly.", within="[0, inf)")
    judge_latency_secs: float = setting(0.0, "Seconds before each answer of the embedded judge.")
    label_store: str = setting("", "SQLite file of labels; empty: <train_dir>/<experiment>/labels.sqlite.")


@dataclasses.dataclass(frozen=True)
class PretrainedConfig:
    """Policies of earlier runs."""

    init_from: str = setting(
        "",
        "Folder of a run whose policy's newest parameters a new run begins with; its optimizer and rewards are new.",
        fixed=True,
    )
    guide: str = setting(
        "",
        "Folder of a run whose policy, frozen, acts at some steps in the learning one's stead. It sees the goals of "
        "this run.",
    )
    guide_prob: float = setting(0.5, "Probability that the guide acts at a step, at first.", within="[0, 1]")
    guide_steps: int = setting(
        0, "Environment steps over which guide_prob falls linearly to 0; 0: it does not fall.", within="[0, inf)"
    )
    decay_after_reward: bool = setting(False, "guide_prob falls only after the first reward.")
    train_after_reward: bool = setting(
        False, "The policy learns only from the first reward on: from the batch in which all rewards add up to 1."
    )


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Folder, limits, checkpoints and logs of a run."""

    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting(
        "default_experiment", "Name of this run's folder, else that of --config; an existing run is resumed."
    )
    seed: int = setting(1, "Seed of networks, sampling and environments.", within="[0, 2147483648)")
    train_for_env_steps: int = setting(10_000_000_000, "Environment steps after which the run ends.", within=_COUNT)
    train_for_seconds: float = setting(1e10, "Seconds after which the run ends.", within=_POSITIVE)
    save_every_sec: float = setting(120.0, "Seconds between checkpoints; 0 turns them off.")
    save_every_steps: int = setting(0, "Environment steps between checkpoints; 0 turns them off.")
    keep_checkpoints: int = setting(3, "Newest checkpoints kept.", within=_COUNT)
    save_milestones_sec: float = setting(0.0, "Seconds between checkpoints kept for ever; 0 turns them off.")
    on_sigusr1: str = setting(
        "stop",
        "Action on SIGUSR1, Slurm's warning before the time limit: save and exit with code 0, or save and go on.",
        choices=("stop", "save"),
    )
    stats_avg: int = setting(100, "Episodes over which statistics are averaged.", within=_COUNT)
    log_every_sec: float = setting(5.0, "Seconds between rows of metrics.", within=_POSITIVE)
    wandb: bool = setting(False, "Log to Weights & Biases.")
    wandb_entity: str = setting("", "Weights & Biases entity.")
    wandb_proj: str = setting("", "Weights & Biases project.")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of a training run. Other programs have their own dataclasses of sections."""

    env: EnvConfig = EnvConfig()
    actors: ActorConfig = ActorConfig()
    devices: DevicesConfig = DevicesConfig()
    network: NetworkConfig = NetworkConfig()
    learner: LearnerConfig = LearnerConfig()
    reward: RewardConfig = RewardConfig()
    annotation: AnnotationConfig = AnnotationConfig()
    pretrained: PretrainedConfig = PretrainedConfig()
    run: RunConfig = RunConfig()
    others: tuple[tuple[RewardConfig, AnnotationConfig], ...] = ()  # of the second, third, ... reward

    def terms(self) -> list["Config"]:
        """Returns one Config per reward, with that reward alone."""
        each = ((self.reward, self.annotation), *self.others)
        return [dataclasses.replace(self, reward=own, annotation=asked, others=()) for own, asked in each]


def sections(config: Any, name: str = "") -> dict[str, Any]:
    """Returns the sections of a program's settings by name, nested ones included.

    A program may be a section itself, without a `name`: a PlayConfig is `play`.
    """
    name = name or type(config).__name__.removesuffix("Config").lower()
    found = {name: config} if any(own_settings(config)) else {}
    for field in dataclasses.fields(config):
        part = getattr(config, field.name)
        if dataclasses.is_dataclass(part):
            found |= sections(part, field.name)
    return found


def own_settings(section: Any) -> Iterator[tuple[dataclasses.Field, Any]]:
    """Yields the fields of one section, with their values."""
    for field in dataclasses.fields(section):
        if field.metadata:  # by `setting`
            yield field, getattr(section, field.name)


def settings(config: Any) -> Iterator[tuple[dataclasses.Field, Any]]:
    """Yields every field of all sections of a program, with its value. Names are unique over the sections."""
    for section in sections(config).values():
        yield from own_settings(section)


def with_values(config: Program, values: Mapping[str, Any]) -> Program:
    """Returns `config` with some settings replaced, by name; unknown names are ignored."""
    parts = {}
    for field in dataclasses.fields(cast(Any, config)):
        part = getattr(config, field.name)
        if dataclasses.is_dataclass(part):
            parts[field.name] = with_values(part, values)
        elif field.name in values:
            parts[field.name] = values[field.name]
    return dataclasses.replace(cast(Any, config), **parts)


def config_to_json(config: Config) -> str:
    """Returns a JSON object of the sections, with those of further rewards under `others`. Secrets are left out."""

    def tree(parts: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: {field.name: value for field, value in own_settings(part) if not field.metadata["secret"]}
            for name, part in parts.items()
        }

    others = [tree({"reward": reward, "annotation": annotation}) for reward, annotation in config.others]
    return json.dumps({**tree(sections(config)), **({"others": others} if others else {})}, indent=2) + "\n"


def config_from_json(text: str | bytes) -> Config:
    """Inverts `config_to_json`. Settings that the text lacks have their defaults.

    Raises:
        UserError: the text is no such object.
    """
    try:
        parts = json.loads(text)
        others = tuple(
            (with_values(RewardConfig(), own["reward"]), with_values(AnnotationConfig(), own["annotation"]))
            for own in parts.pop("others", ())
        )
        given = {name: value for part in parts.values() for name, value in part.items()}
        config = dataclasses.replace(with_values(Config(), given), others=others)
        for own in config.terms():
            for (field, value), (_, default) in zip(settings(own), settings(Config())):
                if type(value) is not type(default) and not (type(default) is float and type(value) is int):
                    raise ValueError(f"{field.name} is {value!r}")
        return config
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError) as error:
        raise UserError(f"not the settings of a run (JSON object of sections): {error}") from None


def listed(config: Config) -> Iterator[tuple[dataclasses.Field, Any]]:
    """Yields every setting with its value; with a list, as a flag takes it, where those of several rewards differ."""
    for own in zip(*map(settings, config.terms())):
        values = [value for _, value in own]
        # Always one type per reward: two rewards of one type are not one.
        alike = values.count(values[0]) == len(values) and (len(values) == 1 or own[0][0].name != "llm_reward_type")
        yield own[0][0], values[0] if alike else ",".join(map(str, values))


def hparams(config: Config) -> dict[str, int | float | bool | str]:
    """Returns the settings that are not their defaults, by name, without secrets."""
    known = ((field, value) for field, value in listed(config) if not field.metadata["secret"])
    return {field.name: value for field, value in known if value != field.default}


def changed(old: Config, new: Config) -> list[str]:
    """Returns `name: old -> new` for each setting that differs; secrets are not compared."""
    pairs = zip(listed(old), listed(new), strict=True)
    return [
        f"{field.name}: {before!r} -> {after!r}"
        for (field, before), (_, after) in pairs
        if before != after and not field.metadata["secret"]
    ]


FIXED_ON_RESUME = tuple(field.name for field, _ in settings(Config()) if field.metadata["fixed"])


def check_resume(old: Config, new: Config) -> None:
    """Rejects changes of the settings that are fixed in a run.

    Raises:
        UserError: names the settings. (The caller compares the number of actions, which is fixed, too.)
    """
    refused = {text.split(":")[0]: text for text in changed(old, new) if text.split(":")[0] in FIXED_ON_RESUME}
    if refused:
        started_with = [f"--{field.name}={value}" for field, value in listed(old) if field.name in refused]
        raise UserError(
            f"{'; '.join(refused.values())}: can't change when a run is resumed; give what it was started with, "
            f"{' '.join(started_with)}, or choose another --experiment"
        )


def is_within(value: float, interval: str) -> bool:
    """Returns whether a number is in an interval such as "[0, 1)". NaN is in none."""
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    above = low <= value if interval[0] == "[" else low < value
    below = value <= high if interval[-1] == "]" else value < high
    return above and below


def check_values(config: Any) -> None:
    """Checks each setting by itself. Raises UserError for the first that is outside its range or choices."""
    programs = config.terms() if isinstance(config, Config) else [config]
    for field, value in (setting for program in programs for setting in settings(program)):
        if field.type in (int, float) and not is_within(value, field.metadata["within"]):
            raise UserError(f"--{field.name} {value}: must be in {field.metadata['within']}")
        if field.metadata["choices"] and value not in field.metadata["choices"]:
            raise UserError(f"--{field.name} {value}: must be one of {', '.join(field.metadata['choices'])}")


def check_config(config: Config) -> None:
    """Checks a run's settings by their values alone.

    Raises:
        UserError: the first mistake.
    """
    check_values(config)
    _check_batches(config.learner)
    if config.actors.num_envs_per_worker % (num_splits := config.actors.worker_num_splits):
        number = config.actors.num_envs_per_worker
        raise UserError(f"--num_envs_per_worker {number}: must be a multiple of --worker_num_splits {num_splits}")
    _check_processes(config)
    check_network(config.network)
    _check_pretrained(config.pretrained)
    for own in config.terms():
        check_annotation(own.annotation)
    if any(part in ("", ".", "..") for part in config.run.experiment.split("/")):
        raise UserError(f"--experiment {config.run.experiment!r}: must be the name of a folder")


def _check_pretrained(settings: PretrainedConfig) -> None:
    unguided = PretrainedConfig()
    for name in ("guide_steps", "guide_prob"):
        if (value := getattr(settings, name)) != getattr(unguided, name) and not settings.guide:
            raise UserError(f"--{name} {value}: has no meaning without --guide")
    if settings.decay_after_reward and not settings.guide_steps:
        raise UserError("--decay_after_reward: nothing falls; say over how many steps with --guide_steps")


def _check_batches(learner: LearnerConfig) -> None:
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


def of_all_processes(config: Config) -> Config:
    """Returns the settings without those of single processes: index, number and coordinator's address."""
    own = {name: getattr(DevicesConfig, name) for name in ("coordinator_address", "num_processes", "process_id")}
    return dataclasses.replace(config, devices=dataclasses.replace(config.devices, **own))


def num_processes(devices: DevicesConfig) -> int:
    """Returns the number of a run's processes: that given, else that of Slurm's job step, else 1."""
    # The variable is set for a job step, which srun started; a batch script itself is not in one.
    return devices.num_processes or int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))


def is_primary_process(devices: DevicesConfig) -> bool:
    """Returns whether this is the first of a run's processes, or its only one."""
    several = num_processes(devices) > 1
    return not several or (devices.process_id if devices.num_processes else int(os.environ["SLURM_PROCID"])) == 0


def check_batch_size(learner: LearnerConfig, num_devices: int) -> None:
    """Raises UserError: a batch can't be sharded evenly over the `num_devices` that learn, of all processes."""
    num_trajectories = learner.batch_size // learner.rollout
    if num_trajectories % num_devices:
        raise UserError(
            f"--batch_size {learner.batch_size}: {num_trajectories} trajectories of --rollout {learner.rollout} can't "
            f"be sharded evenly over {num_devices} devices; give a multiple of {num_devices * learner.rollout}, or "
            "change --learner_devices"
        )
    if (num_own := num_trajectories // num_devices) % learner.num_minibatches:
        raise UserError(
            f"--num_minibatches {learner.num_minibatches}: can't split the {num_own} trajectories of a device evenly; "
            f"give a divisor of {num_own}"
        )


def _check_processes(config: Config) -> None:
    devices = config.devices
    several = devices.num_processes > 1
    if (devices.process_id >= 0) != several or (several and not devices.coordinator_address):
        raise UserError("--coordinator_address, --num_processes (2 or more), --process_id: give all three, or none")
    if several and devices.process_id >= devices.num_processes:
        raise UserError(f"--process_id {devices.process_id}: must be below --num_processes {devices.num_processes}")
    port = re.fullmatch(r".+:(\d{1,5})", devices.coordinator_address)
    if devices.coordinator_address and not (port and 1 <= int(port[1]) <= 65535):
        raise UserError(f"--coordinator_address {devices.coordinator_address}: must be host:port, such as node1:12345")


def check_network(network: NetworkConfig) -> None:
    """Raises UserError: an encoder lacks an input that it needs."""
    if network.use_crop and not network.use_blstats:
        raise UserError("--use_crop needs --use_blstats, which holds the hero's position")


def check_keeps_answers(annotation: AnnotationConfig, where: str) -> None:
    """Raises UserError: settings of a training's label store, in a program that keeps its answers elsewhere.

    Args:
        annotation: the settings.
        where: they are kept.
    """
    if annotation.label_store:
        raise UserError(f"--label_store: answers are kept in {where}; leave it out")
    if annotation.llm_max_labels:
        raise UserError(f"--llm_max_labels {annotation.llm_max_labels}: limits what a training asks for; leave it out")


def check_annotation(annotation: AnnotationConfig) -> None:
    """Raises UserError: conflicting settings of the server, or a key instead of its location."""
    if not re.fullmatch(r"((env|file):.+)?", annotation.llm_api_key):
        raise UserError(
            "--llm_api_key: give the key's location, env:NAME or file:PATH; a key on the command line could be read "
            "by others on this machine"
        )
    if not re.fullmatch(r"[A-Za-z0-9.-]*", annotation.llm_api_version):
        raise UserError(f"--llm_api_version {annotation.llm_api_version!r}: must be a version such as 2024-10-21")
    for name in ("judge_wrong_fraction", "judge_wrong_seed", "judge_latency_secs"):
        if annotation.llm_server_addr and (value := getattr(annotation, name)):
            raise UserError(
                f"--{name} {value}: is of the embedded judge, which --llm_server_addr replaces; leave it out"
            )
    if annotation.llm_constraint != "none" and annotation.llm_answer != "label":
        raise UserError(
            f"--llm_constraint {annotation.llm_constraint}: constrains an answer to a label; add --llm_answer label"
        )
