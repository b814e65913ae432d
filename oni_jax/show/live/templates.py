"""Templates of the phrases that show a row of metrics."""

from collections.abc import Mapping

WAITS = {
    "learner_waits_fraction": "learner for games",
    "learner_looks_up_fraction": "learner for rewards",
    "inference_waits_fraction": "inference for games",
    "actors_wait_fraction": "games for actions",
    "games_paused_fraction": "games for learner",
    "captions_read_fraction": "device for captions",
}

# Label -> template, shown when all its fields are known -> style; in the order of the pages.
OVERVIEW: Mapping[str, Mapping[str, str]] = {
    "": {
        "{env_steps:,.0f}{of_limit} steps": "",
        "{env_steps_per_sec:rate} steps/s": "",
        "{secs:clock} gone": "",
        "{secs_left:clock} left": "bold",
    },
    "return": {"{mean_return:,.4g}": "bold"},
    "intrinsic": {"{intrinsic}": "bold"},
    "helpful": {"{helpful}": "bold"},
    "entropy": {"{loss/entropy:.3g} nats": "bold"},
    "episodes": {
        "{episodes:,.0f} ended": "",
        "mean length {mean_length:,.0f}": "",
        "success {episode/success:.1%}{of_short}": "bold",
        "{episode/unlocked:.2f} achievements": "bold",
        "score {episode/score:.1f}%": "bold",
        "depth {episode/dlvl:.3g}": "",
        "kills {episode/kills:.3g}": "",
        "gold {episode/gold:,.3g}": "",
        "experience level {episode/xlvl:.3g}": "",
    },
    "achieved": {"{achieved}": ""},
    "goals": {
        "{episode/goals_reached:.2f} reached in an episode": "",
        "timely {episode/goals_timely_fraction:.0%}": "",
        "mistimed {episode/goals_mistimed_fraction:.0%}": "",
        "bad {episode/goals_bad_fraction:.0%}": "",
        "invalid {episode/goals_invalid_fraction:.0%}": "",
        "achieved {episode/goals_achieved_fraction:.0%}": "",
        "model agrees by {reward/goals_agreement:.0%}": "",
    },
    "limited by": {"{limited_by}; would help: {advice}": ""},
    "labels by": {
        "{labels_by}": "",
        "{server_ok}": "green",
        "{server_not_ok}": "bold yellow",
        "{labels_held:,.0f} held": "",
        "unanswered {steps_unanswered_fraction:.1%} of steps": "",
        "{labels_per_sec:rate}/s": "",
        "{answers_unreadable:,.0f} unreadable": "yellow",
        "{annotation/filtered_fraction:.1%} kept back by a content filter": "bold yellow",
        "{requests_failed:,.0f} requests failed": "yellow",
    },
    "checkpoint": {"{checkpoint_steps:,.0f} steps": "", "{checkpoint_secs:clock} ago": "", "{checkpoint_state}": ""},
    "faults": {
        "{actor_restarts:,.0f} actors replaced": "yellow",
        "{game_restarts:,.0f} games restarted": "yellow",
        "{bad_updates:,.0f} updates skipped": "yellow",
    },
}
QUEUES: Mapping[str, Mapping[str, str]] = {
    "waits": {f"{words} {{{name}:.0%}}": "" for name, words in WAITS.items()},
    "queues": {
        "{ring_slots_full:,.0f} slots full": "",
        "{ring_slots_free:,.0f} slots free": "",
        "{groups_paused:,.0f} groups paused": "",
        "{labels_backlog:,.0f} queries pending": "",
        "{annotation/in_flight:,.0f} in flight": "",
        "{reward/pairs_waiting:,.0f} pairs without a label": "",
        "{reward/gradient_steps_due:,.0f} gradient steps due": "",
    },
    "updates": {
        "{updates:,.0f}": "",
        "{updates_per_sec:rate} a second": "",
        "lag {policy_lag_mean:.1f} (max {policy_lag_max:.0f})": "",
        "{rewarded_steps:,.0f} steps rewarded": "",
    },
    "speed": {
        "learner {env_steps_per_sec:rate} steps/s": "",
        "games {acted_steps_per_sec:rate} steps/s": "",
        "{inference_calls_per_sec:rate} batches/s of {batch_size:rate}": "",
        "reward model {reward_gradient_steps_per_sec:rate} steps/s": "",
    },
    "LLM": {
        "{labels_asked:,.0f} asked": "",
        "{annotation/latency_secs_mean:rate} s a request": "",
        "{llm_tokens_per_sec:rate} tokens/s written": "",
        "{llm_prompt_tokens_per_sec:rate} tokens/s read": "",
        "model right in {reward/accuracy:.0%}": "",
    },
    "memory": {
        "device {device_memory_bytes:GiB}": "",
        "limit {device_memory_limit_bytes:GiB}": "",
        "peak {device_memory_peak_bytes:GiB}": "",
    },
}
# A plain line's, the most important first, but for the limit, which is last.
PLAIN = (
    "{env_steps:,.0f}{of_limit} steps",
    "{env_steps_per_sec:rate} steps/s",
    "{secs_left:clock} left",
    "return {mean_return:,.4g}",
    "intrinsic {intrinsic}",
    "{said_helpful}",
    "unanswered {steps_unanswered_fraction:.1%} of steps",
    "{server_not_ok}",
    "{annotation/filtered_fraction:.1%} kept back by a content filter",
    "success {episode/success:.1%}{of_short}",
    "score {episode/score:.1f}%",
    "depth {episode/dlvl:.3g}",
)
# Statistics of episodes that have a phrase, or would mislead as a mean.
SHOWN_STATS = {f"episode/{name}" for name in ("return", "length", "success", "unlocked", "score", "dlvl", "kills")}
SHOWN_STATS |= {f"episode/{name}" for name in ("gold", "xlvl", "end_status", "turns", "scout", "goals_reached")}
SHOWN_STATS |= {f"episode/goals_{name}_fraction" for name in ("timely", "mistimed", "bad", "invalid", "achieved")}
# Left out when they are 0, or would be shown as 0.
HIDDEN_AT_0 = ("actor_restarts", "game_restarts", "bad_updates", "answers_unreadable", "requests_failed")
HIDDEN_AT_0 += ("inference_calls_per_sec", "reward_gradient_steps_per_sec", "annotation/latency_secs_mean")
HIDDEN_AT_0 += ("annotation/in_flight", "annotation/filtered_fraction")
HIDDEN_AT_0 += ("llm_tokens_per_sec", "llm_prompt_tokens_per_sec", "learner_looks_up_fraction", "labels_per_sec")
