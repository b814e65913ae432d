"""What metrics.jsonl tells of a run, and of runs that differ only in their seeds."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from oni_jax.config import Config, RunConfig, UserError
from oni_jax.envs.tasks import GOAL_REWARD, TASKS
from oni_jax.experiment import read_settings

NUM_POINTS = 200  # of a curve over several runs
NUM_SMOOTHED = 200  # rows; of more, each is the mean of its neighbourhood
MIN_SEEDS = 3  # for an interval: that of two is as wide as the figure
SUCCESS = "success"
SEPARATORS = "/_-. ="
# Student's t, 0.975 quantile, for 1 to 30 degrees of freedom; beyond, the last: a little wide.
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
T_QUANTILES += (2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """R rows of a run, without those that a later start of it has made again."""

    name: str
    config: Config
    env_steps: np.ndarray  # [R] float64, increasing
    hours: np.ndarray  # [R] float64, of training, over all starts
    metrics: Mapping[str, np.ndarray]  # [R] float64 each; NaN where a row lacks it


class Setting(NamedTuple):
    """Runs that differ only in their seeds."""

    label: str
    runs: tuple[Run, ...]


class Curve(NamedTuple):
    """A metric's mean over S runs, where all of them have been."""

    x: np.ndarray  # [K]
    mean: np.ndarray  # [K]
    interval: tuple[np.ndarray, np.ndarray] | None  # [K], [K]: 95 % of the mean; None below MIN_SEEDS


def read_run(folder: str, name: str) -> Run:
    """The run in an experiment's folder; it may be going on.

    Raises:
        UserError: there is none, it has no rows yet, or a file is damaged.
    """
    config = read_settings(folder)
    path = os.path.join(folder, "metrics.jsonl")
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")[:-1]  # what is behind the last newline is being written
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror}); name a run that has trained") from None
    rows = _without_repeats([_parsed(line, path, number) for number, line in enumerate(lines, 1)])
    if not rows:
        raise UserError(f"{path}: holds no rows yet; wait for the run's first --log_every_sec")
    names = sorted({name for _, _, row in rows for name in row})
    metrics = {name: np.array([row.get(name, np.nan) for _, _, row in rows]) for name in names}
    task = TASKS.get(config.env.root_env)
    if task and task.goal and "mean_return" in metrics:  # the goal pays once an episode, and nothing else pays
        metrics[SUCCESS] = metrics["mean_return"] / GOAL_REWARD
    env_steps, hours = (np.array([row[i] for row in rows], np.float64) for i in (0, 1))
    return Run(name, config, env_steps, hours, metrics)


def _parsed(line: bytes, path: str, number: int) -> dict[str, float]:
    """A row's numbers."""
    try:
        row = json.loads(line)
        numbers = {name: float(x) for name, x in row.items() if type(x) in (int, float)}
        return {**numbers, "env_steps": numbers["env_steps"], "secs": numbers["secs"]}
    except (ValueError, AttributeError, KeyError, OverflowError, RecursionError):
        raise UserError(f"{path}: line {number} is no row of metrics; remove it") from None


def _without_repeats(rows: Sequence[Mapping[str, float]]) -> list[tuple[float, float, Mapping[str, float]]]:
    """(env_steps, hours, row), in order. A start that goes on from a checkpoint makes the rows behind that anew."""
    kept: list[tuple[float, float, Mapping[str, float]]] = []
    hours_before, last_secs = 0.0, 0.0
    for row in rows:
        steps, secs = row["env_steps"], row["secs"]
        if kept and (secs < last_secs or steps <= kept[-1][0]):
            while kept and kept[-1][0] >= steps:
                kept.pop()
            hours_before = kept[-1][1] if kept else 0.0
        last_secs = secs
        kept.append((steps, hours_before + secs / 3600, row))
    return kept


def group_runs(runs: Sequence[Run]) -> list[Setting]:
    """Runs together whose settings are the same but for section `run`: name, seed, limits, what is written."""
    groups: dict[Config, list[Run]] = {}
    for run in runs:
        groups.setdefault(dataclasses.replace(run.config, run=RunConfig()), []).append(run)
    labels = [_label([run.name for run in group]) for group in groups.values()]
    if len(set(labels)) < len(labels):
        labels = [", ".join(run.name for run in group) for group in groups.values()]
    return [Setting(label, tuple(group)) for label, group in zip(labels, groups.values())]


def _label(names: Sequence[str]) -> str:
    """What the names begin with, all of them."""
    common = names[0] if len(names) == 1 else os.path.commonprefix(list(names)).rstrip(SEPARATORS)
    return common.removesuffix("seed").rstrip(SEPARATORS) or names[0]


def series(run: Run, metric: str, x: str) -> tuple[np.ndarray, np.ndarray]:
    """(x [K], values [K]) where the run has the metric. `x`: env_steps or hours."""
    values = run.metrics.get(metric, np.full(len(run.env_steps), np.nan))
    there = np.isfinite(values)
    return getattr(run, x)[there], smoothed(values[there])


def smoothed(values: np.ndarray) -> np.ndarray:
    """Means over a window that grows with the number of values [K], so that a long run's line can be read."""
    half = len(values) // NUM_SMOOTHED // 2
    if half == 0:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    first, end = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return (sums[end] - sums[first]) / (end - first)


def mean_curve(runs: Sequence[Run], metric: str, x: str) -> Curve | None:
    """The mean over runs, each taken as straight between its rows; None where they have nothing in common."""
    lines = [series(run, metric, x) for run in runs]
    if any(len(places) == 0 for places, _ in lines):
        return None
    if len(lines) == 1:
        return Curve(*lines[0], None)
    first, last = max(places[0] for places, _ in lines), min(places[-1] for places, _ in lines)
    if first >= last:
        return None
    grid = np.linspace(first, last, NUM_POINTS)
    values = np.stack([np.interp(grid, places, own) for places, own in lines])
    mean = values.mean(axis=0)
    if len(lines) < MIN_SEEDS:
        return Curve(grid, mean, None)
    half = student_t(len(lines) - 1) * values.std(axis=0, ddof=1) / np.sqrt(len(lines))
    return Curve(grid, mean, (mean - half, mean + half))


def student_t(degrees_of_freedom: int) -> float:
    """The 0.975 quantile."""
    return T_QUANTILES[min(degrees_of_freedom, len(T_QUANTILES)) - 1]


def last_value(run: Run, metric: str) -> Any:
    """The newest number that the run has of a metric; None when it has none."""
    values = series(run, metric, "hours")[1]
    return float(values[-1]) if len(values) else None
