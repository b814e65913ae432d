"""Panels of the figures of runs, and the figures that they make."""

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oni_jax.metrics.names import METRICS
from oni_jax.runs.curves import EPISODE_SUCCESS, INTRINSIC_RETURN, SUCCESS, UNLOCKED

X_AXES = ("env_steps", "hours")


class Scale(enum.Enum):
    """Scale of the vertical axis."""

    NUMBER = enum.auto()
    FRACTION = enum.auto()  # fraction of 1, shown as per cent
    FULL_FRACTION = enum.auto()  # the same, always from 0 to 100 %


class Panel(NamedTuple):
    """A diagram: one metric against steps or hours."""

    metric: str
    title: str  # {episodes}: the number averaged over; {type}: as in the metric's name
    x: str  # one of X_AXES
    scale: Scale = Scale.NUMBER


def _on_both(metric: str, title: str, scale: Scale = Scale.NUMBER) -> tuple[Panel, ...]:
    return tuple(Panel(metric, title, x, scale) for x in X_AXES)


# Name of the file -> its panels.
FIGURES: Mapping[str, Sequence[Panel]] = {
    "return": _on_both("mean_return", "Return, mean of the last {episodes}"),
    "intrinsic_return": _on_both(INTRINSIC_RETURN, "Intrinsic return ({type}), mean of the last {episodes}"),
    "success": _on_both(SUCCESS, "Success rate of the last {episodes}", Scale.FRACTION),
    "achievements": _on_both(UNLOCKED, "Achievements in an episode, mean of the last {episodes}"),
    "goals": (
        *_on_both("episode/goals_timely_fraction", "Open goals whose prerequisites hold", Scale.FRACTION),
        Panel("episode/goals_mistimed_fraction", "Open goals that other states allow", "hours", Scale.FRACTION),
        Panel("episode/goals_bad_fraction", "Open goals that nothing reaches", "hours", Scale.FRACTION),
        Panel("episode/goals_invalid_fraction", "Suggestions that name no goal", "hours", Scale.FRACTION),
        Panel("reward/goal_coverage", "Steps taken with an answer", "hours", Scale.FULL_FRACTION),
        *_on_both("episode/goals_achieved_fraction", "Suggested goals that the episode reached", Scale.FRACTION),
    ),
    "depth": _on_both("episode/dlvl", "Depth at the end, mean of the last {episodes}"),
    "labels": (
        Panel("labels_held", "Labels held", "hours"),
        Panel("labels_backlog", "Pending queries", "hours"),
        Panel("steps_unanswered_fraction", "Steps whose caption has no answer", "hours", Scale.FRACTION),
        Panel("answers_unreadable", "Unreadable answers since a start", "hours"),
        Panel("requests_failed", "Failed requests since a start", "hours"),
    ),
    "goal_model": (
        *_on_both("reward/goals_agreement", "Goal model's agreement with answers held out", Scale.FRACTION),
        Panel("reward/goals_calibration_error", "Calibration error of its probabilities", "hours", Scale.FRACTION),
    ),
    "reward_model": (
        *_on_both("reward/accuracy", "Reward model's accuracy on its batches", Scale.FRACTION),
        Panel("reward/loss", "Its loss", "hours"),
        Panel("reward/helpful_fraction", "Labels of its batches that say helpful", "hours", Scale.FRACTION),
    ),
    "speed": (
        Panel("env_steps_per_sec", "Environment steps a second", "hours"),
        Panel("learner_waits_fraction", "The learner waits for games", "hours", Scale.FULL_FRACTION),
        Panel("actors_wait_fraction", "Games wait for actions", "hours", Scale.FULL_FRACTION),
        Panel("games_paused_fraction", "Games wait for the learner", "hours", Scale.FULL_FRACTION),
    ),
}


DIAGNOSTICS = ("goals", "labels", "goal_model", "reward_model", "speed")  # figures of what a run does, not of how well


def metrics_of(figures: Mapping[str, Sequence[Panel]]) -> frozenset[str]:
    return frozenset(panel.metric for panels in figures.values() for panel in panels)


DRAWN = metrics_of(FIGURES)


def chosen_figures(metrics: Sequence[str]) -> dict[str, Sequence[Panel]]:
    """Returns a figure for each of these metrics, against steps and hours."""
    known = {panel.metric: panel for panels in FIGURES.values() for panel in panels}
    found: dict[str, Sequence[Panel]] = {}
    for name in metrics:
        metric = SUCCESS if name == EPISODE_SUCCESS else name
        is_fraction = metric in METRICS and METRICS[metric].unit == "fraction"
        title = metric.replace("{", "{{").replace("}", "}}")
        like = known.get(metric, Panel(metric, title, "", Scale.FRACTION if is_fraction else Scale.NUMBER))
        found[metric.removesuffix("/<type>").replace("/", "_")] = _on_both(metric, like.title, like.scale)
    return found
