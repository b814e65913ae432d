"""A row of metrics in words, under the labels that views show."""

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
    "inference_waits_fraction": "inference for games",
    "actors_wait_fraction": "games for actions",
    "games_paused_fraction": "games for learner",
}
Known = Mapping[str, float]  # finite
Phrase = tuple[str, str]  # a text, and the style that it is shown in

# Label -> what is said under it, of fields that are all known -> its style; in the order of the view.
SAID: Mapping[str, Mapping[str, str]] = {
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
        "{rewarded_steps:,.0f} steps rewarded": "",
    },
    "faults": {
        "{actor_restarts:,.0f} actors replaced": "yellow",
        "{game_restarts:,.0f} games started anew": "yellow",
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
    "queues": {
        "{ring_slots_full:,.0f} slots full": "",
        "{ring_slots_free:,.0f} slots free": "",
        "{groups_paused:,.0f} groups paused": "",
        "{labels_backlog:,.0f} to ask": "",
        "{annotation/in_flight:,.0f} being asked": "",
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
# Nothing is said of these when they are 0.
ONLY_SOME = ("actor_restarts", "game_restarts", "bad_updates", "answers_unreadable", "requests_failed")
ONLY_SOME += ("inference_calls_per_sec", "reward_gradient_steps_per_sec", "annotation/latency_secs_mean")
ONLY_SOME += ("llm_tokens_per_sec", "llm_prompt_tokens_per_sec")


class _Number(float):
    """A number that can also be written as a clock, as a rate, or in GiB."""

    def __format__(self, form: str) -> str:
        if form == "clock":
            return clock(self)
        if form == "rate":  # two digits that count below 10, and no fraction from there on
            form = ",.0f" if self >= 10 else ".2g"
        return f"{self / GIB:.2f} GiB" if form == "GiB" else super().__format__(form)


def phrases(row: Row, run: RunConfig) -> dict[str, list[Phrase]]:
    """Label -> what is said under it, in the order of the view. What the row lacks is left out."""
    fields = _fields(row, run)
    return {label: list(_told(said, fields)) for label, said in SAID.items()}


def _told(said: Mapping[str, str], fields: Mapping[str, Any]) -> Iterator[Phrase]:
    for text, style in said.items():
        with contextlib.suppress(KeyError):
            yield text.format_map(fields), style


def _fields(row: Row, run: RunConfig) -> dict[str, Any]:
    known = finite(row)
    fields: dict[str, Any] = {name: _Number(x) for name, x in known.items() if x or name not in ONLY_SOME}
    fields["experiment"] = printable(run.experiment)
    limit = run.train_for_env_steps
    fields["of_limit"] = "" if limit >= 1e10 else f" of {limit / 1e6:,.4g} M" if limit >= 1e6 else f" of {limit:,.0f}"
    if (left := secs_left(known, run)) is not None:
        fields["secs_left"] = _Number(left)
    if calls := known.get("inference_calls_per_sec"):
        fields["batch_size"] = _Number(known.get("acted_steps_per_sec", 0.0) / calls)
    if state := str(row.get("server_state", "")):
        # One word is about the server; more are a phrase, such as "waiting for server".
        fields["server_ok" if state == "ok" else "server_not_ok"] = state if " " in state else f"server {state}"
    return fields


def finite(row: Row) -> Known:
    """The row's numbers that are finite."""
    return {name: value for name, value in numbers(row).items() if math.isfinite(value)}


def secs_left(known: Known, run: RunConfig) -> float | None:
    """Seconds until the first of the run's two limits; None when that is years away or can't be told."""
    left = [run.train_for_seconds - known.get("secs", 0.0)]
    rate = known.get("env_steps_per_sec_overall", 0.0)
    if rate > 0:
        left.append((run.train_for_env_steps - known.get("env_steps", 0)) / rate)
    return max(0.0, min(left)) if min(left) < 1e9 else None


def clock(secs: float) -> str:
    """h:mm:ss, or days and hours."""
    span = datetime.timedelta(seconds=round(secs))
    return f"{span.days} day{'s' * (span.days > 1)} {span.seconds // 3600} h" if span.days else str(span)
