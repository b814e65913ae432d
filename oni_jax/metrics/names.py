"""Every name that a row of a training run may hold."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Metric(NamedTuple):
    """A line of the table of metrics. Without a unit it is a count, or a number of the loss's or rewards' own scale."""

    unit: str
    meaning: str


# Pieces of a name between < and > stand for any text without a slash.
METRICS: Mapping[str, Metric] = {
    "env_steps": Metric("", "environment steps learnt from; the step of every row"),
    "updates": Metric("", "updates of the policy"),
    "secs": Metric("s", "since this process started training"),
    "episodes": Metric("", "episodes that have ended"),
    "mean_return": Metric("", "mean of the last `stats_avg` episodes"),
    "mean_length": Metric("steps", "mean of the last `stats_avg` episodes"),
    "episode/<name>": Metric("", "mean of each statistic that the environment reports, over the same episodes"),
    "env_steps_per_sec": Metric("1/s", "learnt from; as all rates, over the last 10 s"),
    "env_steps_per_sec_overall": Metric("1/s", "the same, since this process started training"),
    "acted_steps_per_sec": Metric("1/s", "steps that the policy of this process chose an action for"),
    "inference_calls_per_sec": Metric("1/s", "batches of observations answered"),
    "updates_per_sec": Metric("1/s", "updates of the policy"),
    "reward_gradient_steps_per_sec": Metric("1/s", "gradient steps of a reward model"),
    "labels_per_sec": Metric("1/s", "answers of the LLM that could be read"),
    "llm_tokens_per_sec": Metric("1/s", "tokens that the LLM wrote, by the server's own count"),
    "llm_prompt_tokens_per_sec": Metric("1/s", "tokens of the prompts, by the server's own count"),
    "learner_waits_fraction": Metric("fraction", "of the last row's time, that the learner waited for trajectories"),
    "inference_waits_fraction": Metric("fraction", "that inference waited for observations"),
    "actors_wait_fraction": Metric("fraction", "that the actors waited for actions"),
    "games_paused_fraction": Metric(
        "fraction", "that all games stood still: the learner had not taken what was collected"
    ),
    "ring_slots_full": Metric("", "slots of the ring that wait for the learner"),
    "ring_slots_free": Metric("", "slots of the ring that can be filled"),
    "groups_paused": Metric("", "groups of games that wait for a free slot"),
    "labels_backlog": Metric("", "messages, or pairs, that wait to be asked"),
    "policy_lag_mean": Metric("versions", "between the policy that acted and the newest, of the last batch"),
    "policy_lag_max": Metric("versions", "the largest of them"),
    "rewarded_steps": Metric("", "steps learnt from whose intrinsic reward was not 0"),
    "extrinsic_rewards": Metric(
        "", "histogram: the environment's rewards of the last batch that are not 0, on its first device"
    ),
    "intrinsic_rewards": Metric("", "histogram: the same of the intrinsic rewards, divided by the messages' counts"),
    "bad_updates": Metric("", "updates skipped, because loss or gradients were not finite"),
    "actor_restarts": Metric("", "actor processes replaced"),
    "game_restarts": Metric("", "single games that failed and were started anew"),
    "compilations": Metric("", "programs that XLA compiled or found compiled; stands still after the first updates"),
    "device_memory_bytes": Metric("bytes", "taken on the first accelerator; as those below, not on a CPU"),
    "device_memory_peak_bytes": Metric("bytes", "the most that was taken"),
    "device_memory_limit_bytes": Metric("bytes", "what may be taken"),
    "captions_seen": Metric("", "distinct messages met by this process"),
    "labels_held": Metric("", "labels in hand for this model and prompt"),
    "labels_asked": Metric("", "messages, or pairs, put to the LLM server"),
    "answers_unreadable": Metric("", "answers without a label"),
    "requests_failed": Metric("", "requests that failed, each try counted"),
    "server_state": Metric("a word", "what is known of the LLM server; only in the JSONL file and the view"),
    "answers": Metric("text", "the newest answers: message, label and text; not in the JSONL file"),
    "loss/loss": Metric("", "policy, value and exploration loss together, of the last update, as all that follow"),
    "loss/policy_loss": Metric("", "PPO's clipped objective, negated"),
    "loss/value_loss": Metric("", "clipped squared error, times its coefficient"),
    "loss/exploration_loss": Metric("", "entropy or divergence, times its coefficient"),
    "loss/entropy": Metric("nats", "of the policy"),
    "loss/ratio_mean": Metric("", "new over old probability of an action, bounded to [0.05, 20]"),
    "loss/ratio_min": Metric("", "the smallest"),
    "loss/ratio_max": Metric("", "the largest"),
    "loss/ratio_clipped_fraction": Metric("fraction", "of steps whose ratio is beyond PPO's bounds"),
    "loss/masked_fraction": Metric("fraction", "of steps that are too old to learn from"),
    "loss/value_mean": Metric("", "estimated returns"),
    "loss/target_mean": Metric("", "V-trace's targets of them"),
    "loss/advantage_std": Metric("", "deviation of the advantages before they are normalised"),
    "loss/reward_mean": Metric("", "a step's reward, as learnt from"),
    "loss/extrinsic_reward_mean": Metric("", "a step's reward by the environment"),
    "loss/intrinsic_reward_mean": Metric("", "a step's intrinsic reward, without its coefficient"),
    "loss/intrinsic_reward_mean/<type>": Metric("", "the same, of one of several rewards, which are added for that"),
    "loss/num_rewarded_steps": Metric("", "steps of the batch whose intrinsic reward is not 0"),
    "loss/policy_lag_mean": Metric("versions", "as policy_lag_mean"),
    "loss/policy_lag_max": Metric("versions", "as policy_lag_max"),
    "loss/grad_norm": Metric("", "of the gradients, before they are clipped"),
    "loss/bad_update": Metric("", "1: the update was skipped"),
    "loss/not_finite": Metric("", "-1, or the place of the cause in `learner.update.SOURCES`"),
    "reward/loss": Metric("", "of a reward model, at its newest gradient step, as all that follow"),
    "reward/accuracy": Metric("fraction", "of the batch's labels that the model gives too"),
    "reward/helpful_fraction": Metric("fraction", "of the batch's labels that say helpful"),
    "reward/tie_fraction": Metric("fraction", "of the batch's pairs that are ties"),
    "reward/grad_norm": Metric("", "of the gradients, before they are clipped"),
    "reward/bad_steps": Metric("", "gradient steps skipped, because loss or gradients were not finite"),
    "reward/bad_steps_in_row": Metric("", "of them, the last ones without a good one between"),
    "reward/gradient_steps": Metric("", "made so far"),
    "reward/gradient_steps_due": Metric("", "that wait to be made"),
    "reward/dataset_rows": Metric("", "labels, or pairs, that ever came"),
    "reward/pairs_waiting": Metric("", "pairs that were drawn and have no label yet"),
    "reward/<type>/<name>": Metric("", "the same, of one of several rewards"),
    "annotation/problem": Metric("text", "what the server or the label store said last; only in the JSONL file"),
    "annotation/requests": Metric("", "sent to the LLM server"),
    "annotation/in_flight": Metric("", "messages, or pairs, asked and not answered yet"),
    "annotation/latency_secs_mean": Metric("s", "of the last 100 requests that were answered"),
    "annotation/prompt_tokens": Metric("", "tokens of the prompts, by the server's own count"),
    "annotation/completion_tokens": Metric("", "tokens that the LLM wrote, by the server's own count"),
    "annotation/dropped": Metric("", "messages, or pairs, dropped because too many waited"),
    "annotation/put_aside": Metric("", "messages, or pairs, that get no label in this run"),
    "annotation/failures/<kind>": Metric("", "failures by name, see `oni_jax/annotation/failures.py`"),
    "annotation/events/<kind>": Metric("", "things that were put right, such as choices out of order"),
}

_PATTERN = re.compile("|".join(re.sub(r"<\w+>", "[^/]+", name) for name in METRICS))


def undocumented(names: Iterable[str]) -> list[str]:
    """Those of the names that the table lacks."""
    return sorted(name for name in names if not _PATTERN.fullmatch(name))


def markdown_table() -> list[str]:
    """The lines of the README's table."""
    lines = [f"| {name} | {metric.unit} | {metric.meaning} |" for name, metric in METRICS.items()]
    return ["| name | unit | what |", "|---|---|---|", *lines]
