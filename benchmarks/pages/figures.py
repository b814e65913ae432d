"""Figures of the studies: curves of each study's main cases, from the results in the repository."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from benchmarks.studies.base import FOLDER, Study
from benchmarks.studies.results import by_cell, by_task, counted, curve
from oni_jax.runs.curves import SUCCESS, UNLOCKED
from oni_jax.show.report.plots import COLOURS, DOTS_PER_INCH, STYLE, image

IMAGES = FOLDER.parents[1] / "docs" / "images" / "studies"
Y_LABELS = {
    "mean_return": "return of an episode",
    SUCCESS: "episodes that succeed",
    UNLOCKED: "achievements in an episode, of 22",
}
PANEL_INCHES, LABEL_INCHES, MARGIN_INCHES = (4.6, 3.6), 2.6, 0.8
LABEL_CHARS, LINE_HEIGHT = 34, 0.052  # size of a label's line; its height is a fraction of the axes'
Runs = Sequence[Mapping[str, Any]]


def figure(study: Study) -> bytes | None:
    """Draws a study's figure, a panel for each task, as PNG; None: it has no results."""
    found = counted(study)
    tasks = by_task(found)
    if not tasks:
        return None
    x = np.asarray(found[study.over], float) / (60 if study.over == "seconds" else 1e6)
    with matplotlib.rc_context(STYLE):
        width, height = PANEL_INCHES
        total = len(tasks) * width + LABEL_INCHES
        drawn = Figure(figsize=(total, height), dpi=DOTS_PER_INCH)
        axes = drawn.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
        drawn.subplots_adjust(MARGIN_INCHES / total, 0.14, 1 - LABEL_INCHES / total, 0.86, wspace=0.08)
        drawn.suptitle(study.title, x=MARGIN_INCHES / total, ha="left", fontsize=12)
        ends: dict[str, float] = {}
        for axis, (task, runs) in zip(axes, tasks.items()):
            ends = _draw(axis, study, x, by_cell(runs))
            axis.set_title(f"{task}: mean over seeds, and their range", loc="left", fontsize=8, color="dimgrey")
            axis.set_xlabel("minutes of training" if study.over == "seconds" else "million environment steps")
        axes[0].set_ylim(bottom=min([0.0, *(np.min(line.get_ydata()) for axis in axes for line in axis.lines)]))
        axes[0].set_ylabel(Y_LABELS[study.metric])
        _label(axes[-1], study, ends)
    return image(drawn, "png")


def _draw(axis: Axes, study: Study, x: np.ndarray, cells: Mapping[str, Runs]) -> dict[str, float]:
    """Draws the mean over the seeds of each case, and their range. Returns the means' ends."""
    ends = {}
    for label, colour in zip(study.shown, COLOURS):
        values = np.stack([curve(run, study.metric) for run in cells.get(label, [])] or [np.full(len(x), np.nan)])
        there = np.isfinite(values).all(axis=0)
        if not there.any():
            continue
        values = values[:, there]
        means = values.mean(axis=0)
        axis.plot(x[there], means, color=colour, linewidth=1.8, clip_on=False)
        axis.fill_between(x[there], values.min(axis=0), values.max(axis=0), color=colour, alpha=0.1, linewidth=0)
        ends[label] = float(means[-1])
    axis.set_xlim(0, x[-1])
    if study.metric == SUCCESS:
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return ends


def _label(axis: Axes, study: Study, ends: Mapping[str, float]) -> None:
    """Writes each case's words to the right of its curve's end, moved up or down where they would overlap."""
    texts = {label: textwrap.wrap(study.shown[label], LABEL_CHARS) for label in sorted(ends, key=ends.__getitem__)}
    heights = np.array([len(lines) * LINE_HEIGHT + 0.015 for lines in texts.values()])
    low, high = axis.get_ylim()
    wanted = np.array([(ends[label] - low) / (high - low) for label in texts])
    middles = spread(wanted, heights)
    colours = dict(zip(study.shown, COLOURS))
    for (label, lines), middle, end in zip(texts.items(), middles, wanted):
        in_axes: Mapping[str, Any] = {"transform": axis.transAxes, "color": colours[label], "clip_on": False}
        axis.plot((1, 1.04), (end, middle), linewidth=0.7, **in_axes)
        axis.text(1.05, middle, "\n".join(lines), va="center", fontsize=8.5, **in_axes)


def spread(wanted: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Returns middles of labels, from below, near the wanted ones and with room for their heights."""
    middles = wanted.copy()
    bottom = 0.0
    for i, height in enumerate(heights):
        middles[i] = max(middles[i], bottom + height / 2)
        bottom = middles[i] + height / 2
    top = 1.0
    for i in reversed(range(len(heights))):
        middles[i] = min(middles[i], top - heights[i] / 2)
        top = middles[i] - heights[i] / 2
    return middles
