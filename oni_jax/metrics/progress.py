"""What a run shows while it goes on: one live view on a terminal, plain lines elsewhere."""

import datetime
import os
import sys
from typing import TextIO

from oni_jax.config import RunConfig
from oni_jax.metrics.rows import Row, numbers


class Progress:
    """Plain lines, one a row."""

    def __init__(self, run: RunConfig, stream: TextIO):
        self._run = run
        self._stream = stream

    def update(self, row: Row) -> None:
        """Shows a row; what it lacks is left out."""
        print(" | ".join(f"{label} {text}" for label, text in describe(row, self._run)), file=self._stream, flush=True)

    def close(self) -> None:
        pass


class NullProgress(Progress):
    """Shows nothing."""

    def __init__(self) -> None:
        pass

    def update(self, row: Row) -> None:
        pass


def build_progress(run: RunConfig, stream: TextIO | None = None) -> Progress:
    """The live view where `stream` (stdout when None) is a terminal and rich is installed, else plain lines."""
    out: TextIO = sys.stdout if stream is None else stream
    if out.isatty() and os.environ.get("TERM") not in (None, "", "dumb"):
        try:
            from oni_jax.metrics.live import LiveProgress  # brings rich
        except ImportError:
            pass
        else:
            return LiveProgress(run, out)
    return Progress(run, out)


def describe(row: Row, run: RunConfig) -> list[tuple[str, str]]:
    """A row in words: (label, text) of each line of the view."""
    known = numbers(row)
    lines = [
        ("steps", _steps(known, run)),
        ("speed", _speed(known)),
        ("time", _time(known, run)),
        ("episodes", _episodes(known)),
        ("labels", _labels(known, row.get("server_state"))),
        ("waits", _waits(known)),
        ("policy", _policy(known)),
        ("faults", _faults(known)),
    ]
    return [(label, text) for label, text in lines if text]


def secs_left(known: Row, run: RunConfig) -> float | None:
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


def _steps(known: Row, run: RunConfig) -> str:
    if "env_steps" not in known:
        return ""
    share = known["env_steps"] / run.train_for_env_steps
    limit = f" ({share:.1%} of {run.train_for_env_steps:,})" if run.train_for_env_steps < 1e10 else ""
    return f"{known['env_steps']:,.0f}{limit}"


def _speed(known: Row) -> str:
    if "env_steps_per_sec" not in known:
        return ""
    overall = known.get("env_steps_per_sec_overall", float("nan"))
    return f"{known['env_steps_per_sec']:,.0f} a second (last 10 s), {overall:,.0f} overall"


def _time(known: Row, run: RunConfig) -> str:
    if "secs" not in known:
        return ""
    left = secs_left(known, run)
    return f"{clock(known['secs'])} gone" + (f", {clock(left)} left" if left is not None else "")


def _episodes(known: Row) -> str:
    if not known.get("episodes"):
        return "no episode has ended yet" if "episodes" in known else ""
    means = [f"{name} {known[f'mean_{name}']:,.4g}" for name in ("return", "length") if f"mean_{name}" in known]
    return ", ".join([*means, f"{known['episodes']:,.0f} episodes"])


def _labels(known: Row, server_state: str | None) -> str:
    if "labels_held" not in known:
        return ""
    parts = [
        ("labels_backlog", "queued"),
        ("labels_held", "held"),
        ("labels_asked", "asked"),
        ("answers_unreadable", "unreadable"),
        ("requests_failed", "failed"),
    ]
    counts = ", ".join(f"{known[name]:,.0f} {word}" for name, word in parts if name in known)
    # One word is about the server; more are a phrase, such as "waiting for server".
    state = f"server {server_state}" if server_state and " " not in server_state else server_state
    return f"{state}, {counts}" if state else counts


def _waits(known: Row) -> str:
    parts = [
        ("learner_waits_share", "learner for games"),
        ("inference_waits_share", "inference for games"),
        ("actors_wait_share", "games for actions"),
        ("games_paused_share", "games for the learner"),
    ]
    shares = [f"{words} {known[name]:.0%}" for name, words in parts if name in known]
    return ", ".join(shares)


def _policy(known: Row) -> str:
    if "policy_lag_mean" not in known:
        return ""
    newest = f"update {known['updates']:,.0f}, " if "updates" in known else ""
    return f"{newest}lag {known['policy_lag_mean']:.1f} (at most {known.get('policy_lag_max', 0):.0f})"


def _faults(known: Row) -> str:
    parts = [
        ("actor_restarts", "actors replaced"),
        ("game_restarts", "games started anew"),
        ("bad_updates", "updates skipped"),
    ]
    return ", ".join(f"{known[name]:,.0f} {words}" for name, words in parts if known.get(name))
