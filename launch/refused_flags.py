"""Flags of the published systems that are not here, each with the reason that its user is told."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """Names refused for one reason. A name that ends in * stands for all that begin so."""

    names: tuple[str, ...]
    why: str
    harmless: tuple[str, ...] = ()  # values, in lower case, that ask for what is done anyway: accepted


OFF = ("false", "f", "0", "no")
ON = ("true", "t", "1", "yes")

NOT_CARRIED_OVER = (
    Refusal(("with_pbt", "pbt_*"), "population-based training is not carried over; run several --experiment", OFF),
    Refusal(
        ("num_policies", "policy_workers_per_policy"),
        "one policy is trained, by batched inference in one place; leave it out",
        ("1",),
    ),
    Refusal(("gae_lambda",), "GAE is not carried over; advantages are V-trace's (--vtrace_rho, --vtrace_c)"),
    Refusal(("use_cpc", "cpc_*"), "the CPC auxiliary loss is not carried over; leave it out", OFF),
    Refusal(("use_spectral_norm",), "spectral norm is not carried over; leave it out", OFF),
    Refusal(
        ("actor_critic_share_weights",), "a separate actor and critic are not carried over; they share the trunk", ON
    ),
    Refusal(
        ("adaptive_stddev", "initial_stddev", "continuous_tanh_scale"),
        "continuous actions are not carried over; leave it out",
    ),
    Refusal(("llm_size", "num_gpus"), "no model is loaded here; name the one that your server holds with --llm_model"),
    Refusal(
        ("decorrelate_experience_max_seconds", "decorrelate_envs_on_one_worker", "traj_buffers_excess_ratio")
        + ("set_workers_cpu_affinity", "force_envs_single_thread", "default_niceness", "reset_timeout_seconds")
        + ("train_in_background_thread", "learner_main_loop_num_cores", "actor_worker_gpus", "benchmark")
        + ("sampler_only", "experiment_summaries_interval", "num_minibatches_to_accumulate"),
        "tunes an inner part that this system does not have; leave it out",
    ),
    Refusal(("reward_lr", "num_epochs", "annotator", "dataset_dir"), "is a flag of launch.train_reward; leave it out"),
    Refusal(
        ("directory", "n_annotation_chunks", "chunk_number", "ignore_existing", "custom_annotator_string")
        + ("flushing_freq", "use_messages"),
        "is a flag of launch.annotate_pairs; leave it out",
    ),
    Refusal(("num_pairs", "subepisode_length", "policy"), "is a flag of launch.collect_pairs; leave it out"),
)


def find_refusal(name: str) -> Refusal | None:
    """The refusal that names this flag, if any."""
    for refusal in NOT_CARRIED_OVER:
        for pattern in refusal.names:
            if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
                return refusal
    return None
