"""A row of metrics in words, under the labels that views show."""

import datetime
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from oni_jax.config import RunConfig
from oni_jax.metrics.rows import Row, numbers, printable

GIB = 1 << 30
WAITS = {
    "learner_waits_share": "learner for games",
    "inference_waits_share": "inference for games",
    "actors_wait_share": "games for actions",
    "games_paused_share": "games for learner",
}
Known = Mapping[str, float]  # finite
Phrase = tuple[str, str]  # a text, and the style that it is shown in


def phrases(row: Row, run: RunConfig) -> dict[str, Sequence[Phrase]]:
    """Label -> what is said under it, in the order of the view. What the row lacks is left out."""
    known = finite(row)
    about: dict[str, Callable[[Known], Iterator[Phrase]]] = {
        "run": lambda known: _run(known, run),
        "return": _return,
        "episodes": _episodes,
        "faults": _faults,
        "speed": _speed,
        "waits": lambda known: ((f"{words} {share:.0%}", "") for words, share in waits(known)),
        "queues": _queues,
        "LLM": lambda known: _llm(known, str(row.get("server_state", ""))),
        "labels": _labels,
        "memory": _memory,
    }
    return {label: tuple(tell(known)) for label, tell in about.items()}


def finite(row: Row) -> Known:
    """The row's numbers that are finite."""
    return {name: value for name, value in numbers(row).items() if math.isfinite(value)}


def waits(known: Known) -> list[tuple[str, float]]:
    """(who waits for whom, share of the time)."""
    return [(words, known[name]) for name, words in WAITS.items() if name in known]


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


def _run(known: Known, run: RunConfig) -> Iterator[Phrase]:
    yield printable(run.experiment), "bold cyan"
    if "env_steps" in known:
        limit = run.train_for_env_steps
        yield f"{known['env_steps']:,.0f}" + (f" of {_short(limit)}" if limit < 1e10 else "") + " steps", ""
    if "secs" in known:
        left = secs_left(known, run)
        yield f"{clock(known['secs'])} gone", ""
        if left is not None:
            yield f"{clock(left)} left", ""
    if "updates" in known:
        yield f"update {known['updates']:,.0f}", ""
    if "policy_lag_mean" in known:
        yield f"lag {known['policy_lag_mean']:.1f} (max {known.get('policy_lag_max', 0):.0f})", ""


def _return(known: Known) -> Iterator[Phrase]:
    if "mean_return" in known:
        yield f"{known['mean_return']:,.4g}", "bold"


def _episodes(known: Known) -> Iterator[Phrase]:
    if "episodes" in known:
        yield f"{known['episodes']:,.0f} ended" if known["episodes"] else "none has ended yet", ""
    if "mean_length" in known:
        yield f"mean length {known['mean_length']:,.0f}", ""
    if "episode/dlvl" in known:
        yield f"depth {known['episode/dlvl']:.3g}", ""
    if "rewarded_steps" in known:
        yield f"{known['rewarded_steps']:,.0f} steps rewarded", ""


def _faults(known: Known) -> Iterator[Phrase]:
    words = {
        "actor_restarts": "actors replaced",
        "game_restarts": "games started anew",
        "bad_updates": "updates skipped",
    }
    return _counts(_not_zero(known), words, "yellow")


def _speed(known: Known) -> Iterator[Phrase]:
    if "env_steps_per_sec" in known:
        yield f"learner {_rate(known['env_steps_per_sec'])} steps/s", ""
    if "updates_per_sec" in known:
        yield f"{_rate(known['updates_per_sec'])} updates/s", ""
    if "acted_steps_per_sec" in known:
        yield f"games {_rate(known['acted_steps_per_sec'])} steps/s", ""
        calls = known.get("inference_calls_per_sec", 0)
        if calls:
            yield f"{_rate(calls)} batches/s of {_rate(known['acted_steps_per_sec'] / calls)}", ""
    if known.get("reward_gradient_steps_per_sec"):
        yield f"reward model {_rate(known['reward_gradient_steps_per_sec'])} steps/s", ""


def _queues(known: Known) -> Iterator[Phrase]:
    words = {
        "ring_slots_full": "slots full",
        "ring_slots_free": "slots free",
        "groups_paused": "groups paused",
        "labels_backlog": "to ask",
        "annotation/in_flight": "being asked",
        "reward/pairs_waiting": "pairs without a label",
        "reward/gradient_steps_due": "gradient steps due",
    }
    return _counts(known, words)


def _llm(known: Known, state: str) -> Iterator[Phrase]:
    if state:
        # One word is about the server; more are a phrase, such as "waiting for server".
        yield f"server {state}" if " " not in state else state, "green" if state == "ok" else "bold yellow"
    if "labels_per_sec" in known:
        yield f"{_rate(known['labels_per_sec'])} labels/s", ""
    if known.get("annotation/latency_secs_mean"):
        yield f"{_rate(known['annotation/latency_secs_mean'])} s a request", ""
    if known.get("llm_tokens_per_sec"):
        yield f"{_rate(known['llm_tokens_per_sec'])} tokens/s written", ""
    if known.get("llm_prompt_tokens_per_sec"):
        yield f"{_rate(known['llm_prompt_tokens_per_sec'])} tokens/s read", ""


def _labels(known: Known) -> Iterator[Phrase]:
    yield from _counts(known, {"labels_held": "held", "labels_asked": "asked"})
    wrong = {"answers_unreadable": "unreadable", "requests_failed": "requests failed"}
    yield from _counts(_not_zero(known), wrong, "yellow")
    if "reward/accuracy" in known:
        yield f"model right in {known['reward/accuracy']:.0%}", ""


def _memory(known: Known) -> Iterator[Phrase]:
    if "device_memory_bytes" in known:
        limit = known.get("device_memory_limit_bytes")
        of_limit = f" of {limit / GIB:.1f}" if limit else ""
        yield f"device {known['device_memory_bytes'] / GIB:.2f}{of_limit} GiB", ""
    if "device_memory_peak_bytes" in known:
        yield f"peak {known['device_memory_peak_bytes'] / GIB:.2f} GiB", ""


def _counts(known: Known, words: Mapping[str, str], style: str = "") -> Iterator[Phrase]:
    return ((f"{known[name]:,.0f} {text}", style) for name, text in words.items() if name in known)


def _not_zero(known: Known) -> Known:
    return {name: value for name, value in known.items() if value}


def _short(value: float) -> str:
    return f"{value / 1e6:,.4g} M" if value >= 1e6 else f"{value:,.0f}"


def _rate(value: float) -> str:
    """Two digits that count below 10, and no fraction from there on."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
