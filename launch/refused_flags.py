"""Flags of the published systems that are refused here, each with the reason shown to its user."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """Flags refused for one reason. A name that ends in * is a prefix."""

    names: tuple[str, ...]
    why: str
    harmless: tuple[str, ...] = ()  # accepted values, in lower case, that ask for the behaviour here


OFF = ("false", "f", "0", "no")
ON = ("true", "t", "1", "yes")

NOT_SUPPORTED = (
    Refusal(("with_pbt", "pbt_*"), "population-based training is not supported; run several --experiment", OFF),
    Refusal(
        ("num_policies", "policy_workers_per_policy"),
        "one policy is trained, with batched inference; leave it out",
        ("1",),
    ),
    Refusal(("use_cpc", "cpc_*"), "the CPC auxiliary loss is not supported; leave it out", OFF),
    Refusal(("use_spectral_norm",), "spectral norm is not supported; leave it out", OFF),
    Refusal(("actor_critic_share_weights",), "actor and critic always share the trunk; leave it out", ON),
    Refusal(
        ("adaptive_stddev", "initial_stddev", "continuous_tanh_scale"),
        "continuous actions are not supported; leave it out",
    ),
    Refusal(("llm_size", "num_gpus"), "no model is loaded here; name the one that your server holds with --llm_model"),
    Refusal(
        ("decorrelate_experience_max_seconds", "decorrelate_envs_on_one_worker", "traj_buffers_excess_ratio")
        + ("set_workers_cpu_affinity", "force_envs_single_thread", "default_niceness", "reset_timeout_seconds")
        + ("train_in_background_thread", "learner_main_loop_num_cores", "actor_worker_gpus", "benchmark")
        + ("sampler_only", "experiment_summaries_interval", "num_minibatches_to_accumulate"),
        "tunes a part that this system does not have; leave it out",
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
    for refusal in NOT_SUPPORTED:
        for pattern in refusal.names:
            if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
                return refusal
    return None
