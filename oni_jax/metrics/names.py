"""Names of all metrics that a row of a training run may hold."""

from collections.abc import Mapping
from typing import NamedTuple


class Metric(NamedTuple):
    """A line of the table of metrics; without a unit, a count or a number on the scale of loss or rewards."""

    unit: str
    meaning: str


# Pieces of a name between < and > stand for any text without a slash.
METRICS: Mapping[str, Metric] = {
    "env_steps": Metric("", "environment steps learnt from; the step of every row"),
    "updates": Metric("", "updates of the policy"),
    "secs": Metric("s", "since this process started training"),
    "episodes": Metric("", "episodes that have ended"),
    "mean_return": Metric("", "mean of the last `stats_avg` episodes"),
    "mean_length": Metric("", "mean of the last `stats_avg` episodes"),
    "episode/<name>": Metric("", "mean of each statistic of the environment, over the same episodes"),
    "episode/intrinsic_return/<type>": Metric("", "sum of a type's rewards in an episode, without its coefficient"),
    "episode/score": Metric("percent", "Crafter's score: the geometric mean of 1 + its achievements' rates, less 1"),
    "episode/goals_timely_fraction": Metric("", "of the open goals at each step, see docs/ellm.md"),
    "episode/goals_mistimed_fraction": Metric("", "of the open goals at each step, see docs/ellm.md"),
    "episode/goals_bad_fraction": Metric("", "of the open goals at each step, see docs/ellm.md"),
    "episode/goals_invalid_fraction": Metric("", "of the open goals at each step, see docs/ellm.md"),
    "episode/goals_achieved_fraction": Metric("", "of the goals suggested in an episode, those reached"),
    "env_steps_per_sec": Metric("1/s", "learnt from; as all rates, over the last 10 s"),
    "env_steps_per_sec_overall": Metric("1/s", "the same, since this process started training"),
    "acted_steps_per_sec": Metric("1/s", "steps that the policy of this process chose an action for"),
    "inference_calls_per_sec": Metric("1/s", "batches of observations answered"),
    "updates_per_sec": Metric("1/s", "updates of the policy"),
    "reward_gradient_steps_per_sec": Metric("1/s", "gradient steps of a reward model"),
    "labels_per_sec": Metric("1/s", "answers of the LLM that could be read"),
    "llm_tokens_per_sec": Metric("1/s", "tokens that the LLM wrote, and those of prompts, by the server's count"),
    "llm_prompt_tokens_per_sec": Metric(
        "1/s", "tokens that the LLM wrote, and those of prompts, by the server's count"
    ),
    "learner_waits_fraction": Metric(
        "fraction",
        "time since the last row in which the learner waited for batches",
    ),
    "learner_looks_up_fraction": Metric("fraction", "the same: it looked up rewards, such as a code's potential"),
    "inference_waits_fraction": Metric("fraction", "the same: inference waited for observations"),
    "actors_wait_fraction": Metric("fraction", "the same: the actors waited for actions"),
    "games_paused_fraction": Metric("fraction", "the same: all environments were paused for the learner"),
    "captions_read_fraction": Metric("fraction", "the same: the device waited for the host to read captions"),
    "limited_by": Metric(
        "a text", "the part that the others wait for, and a flag that would help; only in JSONL and the view"
    ),
    "ring_slots_full": Metric("", "slots of the ring that wait for the learner, and those that can be filled"),
    "ring_slots_free": Metric("", "slots of the ring that wait for the learner, and those that can be filled"),
    "groups_paused": Metric("", "groups of environments that wait for a free slot"),
    "labels_backlog": Metric("", "pending queries"),
    "policy_lag_mean": Metric(
        "versions", "from the policy that acted to the newest, in the last batch: mean, greatest"
    ),
    "policy_lag_max": Metric("versions", "from the policy that acted to the newest, in the last batch: mean, greatest"),
    "rewarded_steps": Metric("", "steps learnt from whose intrinsic reward was not 0"),
    "extrinsic_rewards": Metric("", "histogram: the environment's rewards of the last batch that are not 0"),
    "intrinsic_rewards": Metric("", "histogram: the same of the intrinsic rewards"),
    "bad_updates": Metric("", "updates skipped for NaN or inf in loss or gradients"),
    "actor_restarts": Metric("", "actor processes replaced"),
    "game_restarts": Metric("", "single environments that failed and were restarted"),
    "compilations": Metric("", "programs that XLA compiled or found in its cache"),
    "device_memory_bytes": Metric("bytes", "memory in use on the first accelerator, its peak and its limit"),
    "device_memory_peak_bytes": Metric("bytes", "memory in use on the first accelerator, its peak and its limit"),
    "device_memory_limit_bytes": Metric("bytes", "memory in use on the first accelerator, its peak and its limit"),
    "captions_seen": Metric("", "unique captions seen by this process"),
    "labels_held": Metric("", "labels held for this model and prompt"),
    "labels_unanswered": Metric("", "queries without a recorded answer, where no server is asked"),
    "steps_unanswered_fraction": Metric("fraction", "steps of the run whose caption has no answer"),
    "labels_asked": Metric("", "queries sent to the LLM server since this process started"),
    "answers_unreadable": Metric("", "answers without a readable label since this process started"),
    "requests_failed": Metric("", "failed requests since this process started, retries included"),
    "server_state": Metric("a word", "state of the LLM server; only in JSONL and the view"),
    "answers": Metric("text", "the newest answers: caption, label and text; not in JSONL"),
    "loss/loss": Metric("", "policy, value and exploration loss together; this and all that follow: last update"),
    "loss/policy_loss": Metric("", "PPO's clipped objective, negated"),
    "loss/value_loss": Metric("", "clipped squared error, times its coefficient"),
    "loss/exploration_loss": Metric("", "entropy or divergence, times its coefficient"),
    "loss/entropy": Metric("nats", "of the policy"),
    "loss/ratio_mean": Metric(
        "", "new over old probability of an action, bounded to [0.05, 20]: mean, least, greatest"
    ),
    "loss/ratio_min": Metric("", "new over old probability of an action, bounded to [0.05, 20]: mean, least, greatest"),
    "loss/ratio_max": Metric("", "new over old probability of an action, bounded to [0.05, 20]: mean, least, greatest"),
    "loss/ratio_clipped_fraction": Metric("fraction", "steps whose ratio is beyond PPO's bounds"),
    "loss/masked_fraction": Metric("fraction", "steps that are masked out as too old"),
    "loss/value_mean": Metric("", "estimated returns"),
    "loss/target_mean": Metric("", "V-trace's value targets"),
    "loss/advantage_std": Metric("", "deviation of the advantages before they are normalised"),
    "loss/reward_mean": Metric("", "a step's reward, as learnt from"),
    "loss/extrinsic_reward_mean": Metric("", "a step's reward by the environment"),
    "loss/intrinsic_reward_mean": Metric("", "a step's intrinsic reward, without its coefficient"),
    "loss/intrinsic_reward_mean/<type>": Metric("", "the same, of one of several rewards"),
    "loss/num_rewarded_steps": Metric("", "steps of the batch whose intrinsic reward is not 0"),
    "loss/policy_lag_mean": Metric("versions", "as policy_lag_mean and policy_lag_max"),
    "loss/policy_lag_max": Metric("versions", "as policy_lag_mean and policy_lag_max"),
    "loss/grad_norm": Metric("", "of the gradients, before they are clipped"),
    "loss/bad_update": Metric("", "1: the update was skipped"),
    "loss/not_finite": Metric("", "-1, or the index of the cause in `learner.update.SOURCES`"),
    "reward/loss": Metric("", "of a reward model, at its newest gradient step; so are those that follow"),
    "reward/accuracy": Metric("fraction", "labels of the batch that the model predicts"),
    "reward/helpful_fraction": Metric("fraction", "labels that say helpful"),
    "reward/tie_fraction": Metric("fraction", "pairs of the batch that are ties"),
    "reward/grad_norm": Metric("", "of the gradients, before they are clipped"),
    "reward/bad_steps": Metric("", "gradient steps skipped for NaN or inf; in a row"),
    "reward/bad_steps_in_row": Metric("", "gradient steps skipped for NaN or inf; in a row"),
    "reward/gradient_steps": Metric("", "gradient steps made, and pending"),
    "reward/gradient_steps_due": Metric("", "gradient steps made, and pending"),
    "reward/dataset_rows": Metric("", "labels, or pairs, received so far"),
    "reward/deviation": Metric("", "rnd and noveld: divisor of curiosity"),
    "reward/distance": Metric("", "apt: mean distance to the nearest neighbours so far"),
    "reward/potential_mean": Metric("", "mean of the potential during the warm-up"),
    "reward/potential_scale": Metric("", "divisor of the potential: its standard deviation then"),
    "reward/potential_calls": Metric("", "distinct windows that a potential was asked for"),
    "reward/goal_coverage": Metric("", "ellm: fraction of the last batch's steps taken with an LLM's answer"),
    "reward/goals_unmatched_fraction": Metric("", "ellm: suggestions of an LLM that name no goal"),
    "reward/goals_agreement": Metric(
        "fraction", "mean Jaccard index of the goal model with the newest answers held out"
    ),
    "reward/goals_calibration_error": Metric("fraction", "that of the goal model's probabilities, over ten bins"),
    **{
        f"reward/goals_reliability_{i}": Metric(
            "fraction", "goals suggested, of those to which the goal model gives a probability in that tenth"
        )
        for i in range(10)
    },
    "reward/captions_answered": Metric("", "ellm: captions as asked about, with an answer"),
    "reward/potential_calls_failed": Metric("", "calls that broke a limit, or gave no number"),
    "reward/potential_goal_fraction": Metric("fraction", "windows of bk-goal near to a goal"),
    "reward/potential_memo_fraction": Metric("fraction", "windows that had been seen before"),
    "reward/look_ups_failed": Metric("", "captions for which a plugin's look_up gave no number, paid 0"),
    "reward/pairs_waiting": Metric("", "pairs that were drawn and have no label yet"),
    "reward/<type>/<name>": Metric("", "the same, of one of several rewards"),
    "annotation/problem": Metric("text", "newest problem of the server or the label store; only in JSONL"),
    "annotation/requests": Metric("", "requests sent to the LLM server"),
    "annotation/in_flight": Metric("", "queries in flight"),
    "annotation/latency_secs_mean": Metric("s", "of the last 100 requests that were answered"),
    "annotation/prompt_tokens": Metric("", "tokens of the prompts, and those that the LLM wrote"),
    "annotation/completion_tokens": Metric("", "tokens of the prompts, and those that the LLM wrote"),
    "annotation/dropped": Metric("", "queries dropped because too many were pending"),
    "annotation/put_aside": Metric("", "queries that get no answer in this run"),
    "annotation/filtered": Metric("", "queries that a content filter refused or did not answer"),
    "annotation/filtered_fraction": Metric("fraction", "answers asked for that a content filter kept back"),
    "annotation/restarts": Metric("", "restarts of the judge, or of the process that asks"),
    "annotation/servers": Metric("", "LLM servers, and those that have answered since they failed"),
    "annotation/servers_answering": Metric("", "LLM servers, and those that have answered since they failed"),
    "annotation/failures/<kind>": Metric("", "failures by name, see `oni_jax/annotation/failures.py`"),
    "annotation/events/<kind>": Metric("", "irregularities that were corrected, such as choices out of order"),
}
