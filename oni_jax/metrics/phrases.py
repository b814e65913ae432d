"""Phrases that show a row of metrics, under the labels of views."""

import contextlib
import datetime
import math
from collections.abc import Iterator, Mapping
from typing import Any

from oni_jax.config import RunConfig
from oni_jax.metrics.rows import Row, numbers, printable

GIB = 1 << 30
WAITS = {
    "learner_waits_fraction": "learner for games",
    "learner_looks_up_fraction": "learner for rewards",
    "inference_waits_fraction": "inference for games",
    "actors_wait_fraction": "games for actions",
    "games_paused_fraction": "games for learner",
    "captions_read_fraction": "device for captions",
}
Known = Mapping[str, float]  # finite
Phrase = tuple[str, str]  # text and style

# Label -> template, shown when all its fields are known -> style; in the order of the view.
TEMPLATES: Mapping[str, Mapping[str, str]] = {
    "run": {
        "{experiment}": "bold cyan",
        "{env_steps:,.0f}{of_limit} steps": "",
        "{secs:clock} gone": "",
        "{secs_left:clock} left": "",
        "update {updates:,.0f}": "",
        "lag {policy_lag_mean:.1f} (max {policy_lag_max:.0f})": "",
    },
    "return": {"{mean_return:,.4g}": "bold"},
    "episodes": {
        "{episodes:,.0f} ended": "",
        "mean length {mean_length:,.0f}": "",
        "depth {episode/dlvl:.3g}": "",
        "success {episode/success:.1%}": "",
        "{episode/unlocked:.2f} achievements": "",
        "score {episode/score:.1f} %": "",
        "{rewarded_steps:,.0f} steps rewarded": "",
    },
    "goals": {
        "{episode/goals_reached:.2f} reached in an episode": "",
        "coverage {reward/goal_coverage:.0%}": "",
        "timely {episode/goals_timely_fraction:.0%}": "",
        "mistimed {episode/goals_mistimed_fraction:.0%}": "",
        "bad {episode/goals_bad_fraction:.0%}": "",
        "not of this world {reward/goals_unmatched_fraction:.0%}": "",
        "achieved {episode/goals_achieved_fraction:.0%}": "",
    },
    "faults": {
        "{actor_restarts:,.0f} actors replaced": "yellow",
        "{game_restarts:,.0f} games restarted": "yellow",
        "{bad_updates:,.0f} updates skipped": "yellow",
    },
    "speed": {
        "learner {env_steps_per_sec:rate} steps/s": "",
        "{updates_per_sec:rate} updates/s": "",
        "games {acted_steps_per_sec:rate} steps/s": "",
        "{inference_calls_per_sec:rate} batches/s of {batch_size:rate}": "",
        "reward model {reward_gradient_steps_per_sec:rate} steps/s": "",
    },
    "waits": {f"{words} {{{name}:.0%}}": "" for name, words in WAITS.items()},
    "limit": {"{limited_by}": ""},
    "queues": {
        "{ring_slots_full:,.0f} slots full": "",
        "{ring_slots_free:,.0f} slots free": "",
        "{groups_paused:,.0f} groups paused": "",
        "{labels_backlog:,.0f} queries pending": "",
        "{annotation/in_flight:,.0f} in flight": "",
        "{reward/pairs_waiting:,.0f} pairs without a label": "",
        "{reward/gradient_steps_due:,.0f} gradient steps due": "",
    },
    "LLM": {
        "{server_ok}": "green",
        "{server_not_ok}": "bold yellow",
        "{labels_per_sec:rate} labels/s": "",
        "{annotation/latency_secs_mean:rate} s a request": "",
        "{llm_tokens_per_sec:rate} tokens/s written": "",
        "{llm_prompt_tokens_per_sec:rate} tokens/s read": "",
    },
    "labels": {
        "{labels_held:,.0f} held": "",
        "{labels_asked:,.0f} asked": "",
        "{answers_unreadable:,.0f} unreadable": "yellow",
        "{requests_failed:,.0f} requests failed": "yellow",
        "model right in {reward/accuracy:.0%}": "",
    },
    "memory": {
        "device {device_memory_bytes:GiB}": "",
        "limit {device_memory_limit_bytes:GiB}": "",
        "peak {device_memory_peak_bytes:GiB}": "",
    },
}
# Left out when they are 0, or would be shown as 0.
HIDDEN_AT_0 = ("actor_restarts", "game_restarts", "bad_updates", "answers_unreadable", "requests_failed")
HIDDEN_AT_0 += ("inference_calls_per_sec", "reward_gradient_steps_per_sec", "annotation/latency_secs_mean")
HIDDEN_AT_0 += ("llm_tokens_per_sec", "llm_prompt_tokens_per_sec", "learner_looks_up_fraction")


class _Number(float):
    """A number that can also be written as a clock, as a rate, or in GiB."""

    def __format__(self, form: str) -> str:
        if form == "clock":
            return clock(self)
        if form == "rate":  # two significant digits below 10, integers from there on
            form = ",.0f" if self >= 10 else ".2g"
        return f"{self / GIB:.2f} GiB" if form == "GiB" else super().__format__(form)


def phrases(row: Row, run: RunConfig) -> dict[str, list[Phrase]]:
    """Returns label -> phrases, in the order of the view. What the row lacks is left out."""
    fields = _fields(row, run)
    return {label: list(_filled(templates, fields)) for label, templates in TEMPLATES.items()}


def _filled(templates: Mapping[str, str], fields: Mapping[str, Any]) -> Iterator[Phrase]:
    for template, style in templates.items():
        with contextlib.suppress(KeyError):
            yield template.format_map(fields), style


def _fields(row: Row, run: RunConfig) -> dict[str, Any]:
    known = finite(row)
    fields: dict[str, Any] = {name: _Number(x) for name, x in known.items() if round(x, 2) or name not in HIDDEN_AT_0}
    fields["experiment"] = printable(run.experiment)
    limit = run.train_for_env_steps
    fields["of_limit"] = "" if limit >= 1e10 else f" of {limit / 1e6:,.4g} M" if limit >= 1e6 else f" of {limit:,.0f}"
    if (left := secs_left(known, run)) is not None:
        fields["secs_left"] = _Number(left)
    if calls := known.get("inference_calls_per_sec"):
        fields["batch_size"] = _Number(known.get("acted_steps_per_sec", 0.0) / calls)
    if limit := str(row.get("limited_by", "")):
        fields["limited_by"] = limit
    if state := str(row.get("server_state", "")):
        # One word describes the server; more are a phrase, such as "waiting for server".
        fields["server_ok" if state == "ok" else "server_not_ok"] = state if " " in state else f"server {state}"
    return fields


def finite(row: Row) -> Known:
    """Returns the row's finite numbers."""
    return {name: value for name, value in numbers(row).items() if math.isfinite(value)}


def secs_left(known: Known, run: RunConfig) -> float | None:
    """Returns the seconds until the first of the run's two limits; None when that is years away or unknown."""
    left = [run.train_for_seconds - known.get("secs", 0.0)]
    rate = known.get("env_steps_per_sec_overall", 0.0)
    if rate > 0:
        left.append((run.train_for_env_steps - known.get("env_steps", 0)) / rate)
    return max(0.0, min(left)) if min(left) < 1e9 else None


def clock(secs: float) -> str:
    """Formats a duration as h:mm:ss, or as days and hours."""
    span = datetime.timedelta(seconds=round(secs))
    return f"{span.days} day{'s' * (span.days > 1)} {span.seconds // 3600} h" if span.days else str(span)
