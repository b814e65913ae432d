"""Figures of runs: a line per setting, the mean over its seeds, with an interval."""

import io
import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from oni_jax.envs.random_play import random_play
from oni_jax.host.files import write_atomically
from oni_jax.runs.curves import MIN_SEEDS, Curves, Setting, group_runs, labels_of, mean_curve, names_by_reward, series
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError, counted, printable
from oni_jax.show.report.panels import FIGURES, Panel, Scale

# Okabe and Ito's palette for the colour-blind; more lines differ in their dashes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MAX_WITH_RUNS = len(COLOURS)  # settings; of more, their means alone are drawn, with intervals
DASHES = ("-", "--", ":", "-.")
STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # a name may hold a $
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "font.size": 10,
    "axes.titlesize": 11,
    "pdf.fonttype": 42,  # letters, not drawings of them
}
ON_TOP: Mapping[str, Any] = {"clip_on": False, "zorder": 3}  # above the axes, on which a line of zeros lies
NOTE: Mapping[str, Any] = {"fontsize": 8, "color": "dimgrey"}
RETURN = "mean_return"
Styles = Mapping[Setting, Mapping[str, Any]]
PANEL_INCHES = (5.0, 3.4)
LEGEND_INCHES = (0.7, 0.2)  # its title and the figure's, and a line
DOTS_PER_INCH = 120
TIME_UNITS = (("hours", 1.0, 2.0), ("minutes", 60.0, 2 / 60), ("seconds", 3600.0, 0.0))  # number per hour; first hour


def read_settings(folders: Sequence[str], metrics: Collection[str]) -> list[Setting]:
    """Reads these metrics of runs, grouped by their settings; named by their folders, without what all of these share.

    Raises:
        UserError: see `Run.metrics`.
    """
    paths = [os.path.abspath(folder) for folder in folders]
    around = os.path.dirname(paths[0]) if len(paths) == 1 else os.path.commonpath(paths)
    runs = [Run(folder).metrics(metrics, os.path.relpath(path, around)) for folder, path in zip(folders, paths)]
    return group_runs(runs, os.path.basename(around))


def write_figures(
    settings: Sequence[Setting], folder: str, figures: Mapping[str, Sequence[Panel]] = FIGURES
) -> tuple[list[str], list[str]]:
    """Writes each figure as PNG and PDF. Returns the files, and the names of figures without data.

    Raises:
        UserError: the folder can't be written.
    """
    written, missing = [], []
    for name, panels in figures.items():
        figure = draw_panels(panels, settings)
        if figure is None:
            missing.append(name)
            continue
        path = os.path.join(folder, name)
        try:
            os.makedirs(folder, exist_ok=True)
            for suffix in ("png", "pdf"):
                write_atomically(f"{path}.{suffix}", image(figure, suffix))
                written.append(f"{path}.{suffix}")
        except OSError as error:
            raise UserError(f"--plots_dir {folder}: can't be written ({error.strerror}); name another") from None
    return written, missing


def draw(name: str, settings: Sequence[Setting]) -> Figure | None:
    """Draws a figure of FIGURES; None when no run has any of its metrics."""
    return draw_panels(FIGURES[name], settings)


def draw_panels(panels: Sequence[Panel], settings: Sequence[Setting]) -> Figure | None:
    """Draws a figure of these panels, in rows of two; None when no run has any of their metrics."""
    panels = _of_rewards(panels, settings)
    num_across = min(2, len(panels))  # few panels fill its width: where others have no data, one alone is as wide
    panels = _with_data(panels, settings)
    styles = {
        setting: {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)]}
        for i, setting in enumerate(settings)
        if any(len(series(run, panel.metric, panel.x)[0]) for run in setting.runs for panel in panels)
    }
    if not styles:
        return None
    num_columns = min(2, len(panels))
    num_rows = -(-len(panels) // num_columns)
    with matplotlib.rc_context(STYLE):
        width, height = PANEL_INCHES
        entries, legend_columns = _legend(list(styles), num_across * width)
        title, line = LEGEND_INCHES
        legend_height = title + line * -(-len(entries) // legend_columns)
        size = (num_across * width, num_rows * height + legend_height)
        figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
        tasks = dict.fromkeys(setting.runs[0].config.env.root_env for setting in styles)
        figure.suptitle(printable(", ".join(tasks)), fontsize=9)
        axes = figure.subplots(num_rows, num_columns, squeeze=False)
        for axis, panel in itertools.zip_longest(axes.flat, panels):
            _draw_panel(axis, panel, styles) if panel else axis.remove()
        _draw_legend(figure, styles, entries, legend_columns)
    return figure


def _of_rewards(panels: Sequence[Panel], settings: Sequence[Setting]) -> Sequence[Panel]:
    """Returns the panels, for each of the runs' rewards where a metric has a name for each reward."""
    runs = [run for setting in settings for run in setting.runs]
    labels = list(dict.fromkeys(label for run in runs for label in labels_of(run.config)))
    by_reward = [(panel, names_by_reward(panel.metric, labels)) for panel in panels]
    if all([*names] == [panel.metric] for panel, names in by_reward):
        return panels
    found = []
    for label in ("", *labels):
        for panel, names in by_reward:
            title = panel.title if "{type}" in panel.title or not label else f"{panel.title} ({{type}})"
            chosen = [metric for metric, reward in names.items() if reward == label]
            found += [panel._replace(metric=metric, title=title.replace("{type}", label)) for metric in chosen]
    return found


def _with_data(panels: Sequence[Panel], settings: Sequence[Setting]) -> Sequence[Panel]:
    """Returns the panels of which a run has data."""
    runs = [run for setting in settings for run in setting.runs]
    return [panel for panel in panels if any(len(series(run, panel.metric, panel.x)[0]) for run in runs)]


def image(figure: Figure, suffix: str) -> bytes:
    """Encodes a figure as png or pdf. Equal figures give equal bytes."""
    file = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(file, format=suffix, metadata={"CreationDate": None} if suffix == "pdf" else None)
    return file.getvalue()


def _draw_panel(axis: Axes, panel: Panel, styles: Styles) -> None:
    runs = [run for setting in styles for run in setting.runs]
    lines = {run: series(run, panel.metric, panel.x) for run in runs}
    end = max((xs[-1] for xs, _ in lines.values() if len(xs)), default=0.0)
    unit, factor = next((unit, factor) for unit, factor, start in TIME_UNITS if end >= start)
    factor = factor if panel.x == "hours" else 1.0
    for setting, style in styles.items():
        if len(setting.runs) > 1 and len(styles) <= MAX_WITH_RUNS:
            for run in setting.runs:
                xs, values = lines[run]
                axis.plot(factor * xs, values, linewidth=0.7, alpha=0.45, **ON_TOP, **style)
        curve = mean_curve(setting.runs, panel.metric, panel.x)
        if curve is None:
            continue
        marker = "o" if len(curve.x) == 1 else None  # a line of one point can't be seen
        axis.plot(factor * curve.x, curve.mean, linewidth=1.8, marker=marker, **ON_TOP, **style)
        if curve.interval:
            axis.fill_between(factor * curve.x, *curve.interval, color=style["color"], alpha=0.15, linewidth=0)
    averaged = {run.config.run.stats_avg for run in runs}
    episodes = counted(averaged.pop(), "episode") if len(averaged) == 1 else "episodes"
    axis.set_title(panel.title.format(episodes=episodes), loc="left")
    axis.set_xlim(left=0)
    if panel.x == "hours":
        axis.set_xlabel(f"{unit} of training")
    else:
        axis.set_xlabel("environment steps")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    at_random = _draw_random_play(axis, runs) if panel.metric == RETURN else []
    _scale(axis, np.concatenate([*(values for _, values in lines.values()), at_random]), panel.scale)


def _draw_random_play(axis: Axes, runs: Sequence[Curves]) -> list[float]:
    """Draws the return of random play as a line, where it is known and the same for all runs. Returns it."""
    known = {random_play(run.config.env) for run in runs}
    if len(known) != 1 or not (at_random := known.pop()):
        return []
    mean = at_random.mean_return
    axis.axhline(mean, label="random play", color="grey", linestyle=(0, (1, 2)), linewidth=1.2, zorder=1)
    at_end = {"xytext": (-2, 2), "textcoords": "offset points", "ha": "right", "va": "bottom"}
    axis.annotate(f"random play {mean:.3g}", (1, mean), xycoords=("axes fraction", "data"), **at_end, **NOTE)
    return [mean]


def _scale(axis: Axes, values: np.ndarray, scale: Scale) -> None:
    """Fits the vertical axis to the values, from 0 where none is on its other side; an interval may exceed it."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    if scale is Scale.FULL_FRACTION:
        low, high = 0.0, 1.0
    if low == high == 0:
        high = 1.0 if scale is Scale.NUMBER else 0.05
        axis.yaxis.set_major_locator(MaxNLocator(1))
    margin = 0.05 * (high - low)
    axis.set_ylim(low - margin if low else 0.0, high + margin if high else 0.0)
    if scale is not Scale.NUMBER:
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    elif high >= 10_000:
        axis.yaxis.set_major_formatter(EngFormatter(sep=""))


def _legend(settings: Sequence[Setting], width: float) -> tuple[list[str], int]:
    """Returns the legend's entries, and the number of its columns in a figure of `width` inches."""
    entries = [_entry(setting) for setting in settings]
    num_chars = min(120, 11 * width)  # characters of a line
    return entries, max(1, min(len(entries), int(num_chars // (max(map(len, entries)) + 6))))


def _draw_legend(figure: Figure, styles: Styles, entries: Sequence[str], num_columns: int) -> None:
    handles = [Line2D([], [], linewidth=1.8, **style) for style in styles.values()]
    legend = figure.legend(handles, entries, loc="outside lower center", ncols=num_columns, frameon=False)
    if any(len(setting.runs) > 1 for setting in styles):
        text = "thick: interquartile mean over seeds" + "; thin: each" * (len(styles) <= MAX_WITH_RUNS)
        if any(len(setting.runs) >= MIN_SEEDS for setting in styles):
            text += "; band: 95 % interval (bootstrap)"
        legend.set_title(text, prop=FontProperties(size=8))


def _entry(setting: Setting) -> str:
    seeds = f" ({len(setting.runs)} seeds)" if len(setting.runs) > 1 else ""
    made_by = "; ".join(dict.fromkeys(run.labels_by for run in setting.runs if run.labels_by))
    labels = f", labels by: {made_by}" if made_by else ""
    # matplotlib leaves out what begins with _.
    return "".join(c if c.isprintable() else "?" for c in f" {setting.label}{seeds}{labels}")
