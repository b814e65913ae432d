"""Results of evaluations, as lines for a terminal."""

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.evaluation.config import GREEDY
from oni_jax.evaluation.results import Evaluation, differences
from oni_jax.ops.episode_sums import INTRINSIC_RETURN
from oni_jax.ops.statistics import Interval, difference, summarise
from oni_jax.settings.fields import counted

HEADER = ("", "mean", "95 % interval", "5 %", "25 %", "median", "75 %", "95 %")
BIASED = "short episodes end first, so these statistics are biased"


def lines(evaluation: Evaluation, width: int) -> list[str]:
    """Formats an evaluation for a terminal of `width` columns."""
    of = evaluation
    heading = f"{of.player}, {', '.join([of.root_env, *of.goals.values()])}, at most {of.max_episode_steps:,} steps, "
    if of.policy == GREEDY:
        heading += "greedy, "
    if of.complete:
        heading += f"{counted(of.num_episodes, 'episode')} of seed {of.seed}"
    else:
        heading += f"PARTIAL: {len(of.episodes):,} of {of.num_episodes:,} episodes ({of.interrupted}); {BIASED}"
    rows = []
    for name, x in of.summaries().items():
        numbers = [*x.quantiles[:2], x.median, *x.quantiles[2:]]
        rows.append([name, number(x.mean), interval(x.interval), *map(number, numbers)])
    ends = ", ".join(f"{end} {100 * x.fraction:.1f} %" for end, x in of.ends().items())
    text = [f"{INTRINSIC_RETURN}{label} is not reported: {reason}" for label, reason in of.not_reported.items()]
    text.append(f"ends: {ends}")
    if (success := of.success()) is not None:
        bounds = ", ".join(f"{100 * bound:.1f}" for bound in success.interval)
        text.append(f"success: {100 * success.fraction:.1f} % [{bounds}], {success.count} of {len(of.episodes)}")
    if (score := of.score()) is not None:
        what = "the geometric mean of 1 + the achievements' rates, less 1"
        text.append(f"score: {number(score.value)} % {interval(score.interval)}, {what}")
    rates = [
        [name, *(f"{100 * x:.1f} %" for x in (rate.fraction, *rate.interval))]
        for name, rate in of.achievement_rates().items()
    ]
    table = _table(("achievement", "episodes", "from", "to"), rates, width) if rates else []
    head = [heading, f"labels by: {of.labels_by}"] if of.labels_by else [heading]
    return [*_wrapped(head, width), *_table(HEADER, rows, width), *_wrapped(text, width), *table]


def difference_lines(first: Evaluation, second: Evaluation, width: int) -> list[str]:
    """Formats the differences for a terminal of `width` columns."""
    num_common, found = differences(first, second)
    heading = f"{first.player} minus {second.player}, on the same {counted(num_common, 'episode')}"
    if not num_common:
        return _wrapped([f"{first.player} and {second.player} have finished no episode in common"], width)
    if not (first.complete and second.complete):
        heading += f" (PARTIAL: {BIASED})"
    rows = [[name, number(x.mean), interval(x.interval)] for name, x in found.items()]
    return [*_wrapped([heading], width), *_table(("", "difference", HEADER[2]), rows, width)]


def by_goal_lines(evaluations: Sequence[Evaluation], width: int) -> list[str]:
    """Formats what each player does under each of its goals, on the same episodes, for a terminal of `width` columns.

    Beside each behaviour stands the goal under which there is most of it, and by how much more than under the next.
    """
    text = []
    for player in dict.fromkeys(of.player for of in evaluations):
        by_goal = {of.goals["goal"]: of for of in evaluations if of.player == player}
        common = set.intersection(*({episode.index for episode in of.episodes} for of in by_goal.values()))
        kept = {
            goal: of._replace(episodes=[x for x in of.episodes if x.index in common]) for goal, of in by_goal.items()
        }
        heading = f"{player} under each goal, on the same {counted(len(common), 'episode')}: mean [95 %]"
        text += _wrapped([heading], width)
        if common:
            found = {goal: of.behaviours() for goal, of in kept.items()}
            rows = [_by_goal_row(name, {goal: x[name] for goal, x in found.items()}) for name in _shared(found)]
            text += _table(("", *by_goal, "most under, more than under the next"), rows, width)
    return text


def _shared(found: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    """Returns the names that all have."""
    first, *others = found.values()
    return [name for name in first if all(name in x for x in others)]


def _by_goal_row(name: str, values: Mapping[str, np.ndarray]) -> list[str]:
    cells = [f"{number(x.mean)} {interval(x.interval)}" for x in map(summarise, values.values())]
    ranked = sorted(values, key=lambda goal: -float(values[goal].mean()))
    if len(ranked) < 2 or np.ptp([x.mean() for x in values.values()]) == 0:
        return [name, *cells, ""]
    most = difference(values[ranked[0]], values[ranked[1]])
    return [name, *cells, f"{ranked[0]}: {number(most.mean)} {interval(most.interval)}"]


def number(value: float) -> str:
    """Formats with about three digits and no exponent: 0.123, 1.23, 12.3, 123, 1,234."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    digits = 0 if size >= 100 or value == round(value) else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def interval(bounds: Interval | None) -> str:
    return "unknown" if bounds is None else f"[{number(bounds.low)}, {number(bounds.high)}]"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    sizes = [max(map(len, column)) for column in zip(header, *rows)]
    if sum(sizes) + 2 * (len(sizes) - 1) <= width:
        return [
            "  ".join([cells[0].ljust(sizes[0]), *(cell.rjust(size) for cell, size in zip(cells[1:], sizes[1:]))])
            for cells in (header, *rows)
        ]
    found = []
    for cells in rows:
        named = [f"{name} {cell}" for name, cell in zip(header[1:], cells[1:])]
        found += [cells[0], *textwrap.wrap(", ".join(named), width, initial_indent="  ", subsequent_indent="  ")]
    return found


def _wrapped(texts: Sequence[str], width: int) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(text, width, subsequent_indent="  ")]
