"""Phrases that show a row of metrics, under the labels of views.

Beside a run's metrics a row may hold what a view has found out: `secs_left`, `labels_by`, `checkpoint_steps`,
`checkpoint_secs`, `checkpoint_state`. It may also hold `short_episodes`, the steps of each environment, as long as no
episode of full length can have ended; and NaN for intrinsic returns that are not known yet.
"""

import contextlib
import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

from oni_jax.metrics.rows import Row, finite
from oni_jax.ops.episode_sums import INTRINSIC_RETURN
from oni_jax.settings.fields import counted
from oni_jax.settings.run import RunConfig
from oni_jax.show.live.pace import ENDLESS
from oni_jax.show.live.templates import HIDDEN_AT_0, PLAIN, SHOWN_STATS

GIB = 1 << 30
MAX_PLAIN_CHARS = 159
RETURN = f"episode/{INTRINSIC_RETURN}"  # return of a type
Known = Mapping[str, float]  # finite
Phrase = tuple[str, str]  # text and style


class _Number(float):
    """A number that can also be written as a clock, as a rate, or in GiB."""

    def __format__(self, form: str) -> str:
        if form == "clock":
            return clock(self)
        if form == "rate":  # two significant digits below 10, integers from there on
            form = ",.0f" if self >= 10 else ".2g"
        return f"{self / GIB:.2f} GiB" if form == "GiB" else super().__format__(form)


def phrases(templates: Mapping[str, Mapping[str, str]], row: Row, run: RunConfig) -> dict[str, list[Phrase]]:
    """Returns label -> phrases, in the order of the templates. What the row lacks is left out."""
    fields = _fields(row, run)
    return {label: list(_filled(template, fields)) for label, template in templates.items()}


def plain_line(row: Row, run: RunConfig) -> str:
    """Returns what matters most of a row, in at most MAX_PLAIN_CHARS characters."""
    fields = _fields(row, run)
    *_, end = ["", *(f" | limited by {text}" for text, _ in _filled({"{limited_by}": ""}, fields))]
    line = ""
    for text, _ in _filled(dict.fromkeys(PLAIN, ""), fields):
        longer = f"{line} | {text}" if line else text
        if len(longer) + len(end) <= MAX_PLAIN_CHARS:
            line = longer
    return line + end


def _filled(templates: Mapping[str, str], fields: Mapping[str, Any]) -> Iterator[Phrase]:
    for template, style in templates.items():
        for name, values in _by_reward(template, fields).items():
            with contextlib.suppress(KeyError):
                yield template.format_map(values) + (f" ({name})" if name else ""), style


def _by_reward(template: str, fields: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Returns a template's fields for each reward that has its metric under its name, as one of several has."""
    metric = re.search(r"\{reward/([^/:}]+)", template)
    if not metric or f"reward/{metric[1]}" in fields:
        return {"": fields}
    found = {name: re.fullmatch(f"reward/(.+)/{metric[1]}", name) for name in fields}
    return {match[1]: {**fields, f"reward/{metric[1]}": fields[name]} for name, match in found.items() if match}


def _fields(row: Row, run: RunConfig) -> dict[str, Any]:
    known = finite(row)
    fields: dict[str, Any] = {name: _Number(x) for name, x in known.items() if round(x, 2) or name not in HIDDEN_AT_0}
    limit = run.train_for_env_steps
    fields["of_limit"] = (
        "" if limit >= ENDLESS else f" of {limit / 1e6:,.4g} M" if limit >= 1e6 else f" of {limit:,.0f}"
    )
    if calls := known.get("inference_calls_per_sec"):
        fields["batch_size"] = _Number(known.get("acted_steps_per_sec", 0.0) / calls)
    part, _, advice = str(row.get("limited_by", "")).partition(": ")
    state = str(row.get("server_state", ""))
    # One word describes the server; more are a phrase, such as "waiting for server".
    server = "server_ok" if state == "ok" else "server_not_ok"
    texts = {"limited_by": part, "advice": advice, server: state if " " in state else state and f"server {state}"}
    texts |= {"labels_by": str(row.get("labels_by", "")), "checkpoint_state": str(row.get("checkpoint_state", ""))}
    texts |= {"intrinsic": _intrinsic(row, known), "helpful": _helpful(known), "achieved": _achieved(known)}
    # Labels are helpful or not; goals are there or not.
    texts["said_helpful"] = f"helpful {texts['helpful']}" if "labels" in texts["helpful"] else texts["helpful"]
    short = known.get("short_episodes")
    fields["of_short"] = "" if short is None else f" of episodes up to {short:,.0f} steps"
    return fields | {name: text for name, text in texts.items() if text}


def _intrinsic(row: Row, known: Known) -> str:
    """Returns the intrinsic returns by type, else the reward of a step; empty for a run without one.

    One that has returns is never shown the reward of a step: the number would mean something else when an episode ends.
    """
    if names := [name for name in row if name.startswith(RETURN)]:
        returns = [(name.removeprefix(RETURN), known[name]) for name in names if name in known]
        named = [f"{x:.3g}" + (f" ({name})" if len(returns) > 1 else "") for name, x in returns]
        return f"{', '.join(named)} an episode" if named else ""
    mean = known.get("loss/intrinsic_reward_mean")
    if mean is None or not (mean or known.get("rewarded_steps") or "server_state" in row):
        return ""
    return f"{mean:.3g} a step"


def _helpful(known: Known) -> str:
    """Returns the fractions of answers that help, by what the rewards report."""
    of = {"helpful_fraction": "{:.0%} of labels", "goal_coverage": "answers for {:.0%} of steps"}
    found = []
    for name, value in known.items():
        if match := re.fullmatch(r"reward/(?:(.+)/)?(\w+)", name):
            if words := of.get(match[2]):
                found.append(words.format(value) + (f" ({match[1]})" if match[1] else ""))
    return ", ".join(found)


def _achieved(known: Known) -> str:
    """Returns the other statistics of episodes, the largest first; as percent where they are rates of achievements."""
    form, least = (".0%", 0.005) if "episode/score" in known else (".3g", 1e-9)
    others = (name for name in known if re.fullmatch("episode/[^/]+", name) and name not in SHOWN_STATS)
    shown = {name: known[name] for name in others if abs(known[name]) >= least}
    largest = sorted(shown.items(), key=lambda item: -item[1])
    return ", ".join(f"{name.removeprefix('episode/').replace('_', ' ')} {value:{form}}" for name, value in largest)


def clock(secs: float) -> str:
    """Formats a duration as h:mm:ss, or as days and hours."""
    span = datetime.timedelta(seconds=round(secs))
    return f"{counted(span.days, 'day')} {span.seconds // 3600} h" if span.days else str(span)
