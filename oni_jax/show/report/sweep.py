"""Report of a sweep in one self-contained HTML file: a table of its settings over seeds, figures, and its runs."""

import os
import time
from collections.abc import Sequence

import numpy as np

from oni_jax.host.run_files import last_row
from oni_jax.ops.statistics import summarise
from oni_jax.runs.curves import MIN_SEEDS, SUCCESS, UNLOCKED, Setting, last_value
from oni_jax.settings.fields import UserError
from oni_jax.show.report import listing
from oni_jax.show.report.panels import DRAWN
from oni_jax.show.report.plots import read_settings
from oni_jax.show.report.report import figures_of, page_template

METRICS = {"mean_return": "return", SUCCESS: "success", UNLOCKED: "achievements"}


def make_sweep_report(folder: str, names: Sequence[str]) -> bytes:
    """Makes the HTML file of the runs of these names in a folder.

    Raises:
        UserError: no run has rows of metrics yet, or a file is damaged.
    """
    folders = [run_folder for name in names if last_row(run_folder := os.path.join(folder, name))]
    if not folders:
        raise UserError(f"{folder}: none of its {len(names)} runs has rows of metrics yet")
    settings = read_settings(folders, {*DRAWN, *METRICS})
    listed, skipped = listing.list_runs(folder)
    header, *rows = listing.cells(listed, time.time())
    page = page_template("sweep.html").render(
        name=os.path.basename(os.path.abspath(folder)),
        tasks=", ".join(dict.fromkeys(setting.runs[0].config.env.root_env for setting in settings)),
        results=results(settings),
        **figures_of(settings),
        header=header,
        runs=rows,
        skipped=[line for line in skipped if not line.endswith(": no run")],
    )
    return page.encode()


def results(settings: Sequence[Setting]) -> list[list[str]]:
    """Returns the rows of a table: runs that differ in their seeds, their number, and means of their last values."""
    there = [
        name
        for name in METRICS
        if any(last_value(run, name) is not None for setting in settings for run in setting.runs)
    ]
    rows = [["runs that differ in seed", "seeds", "steps", *(METRICS[name] for name in there)]]
    for setting in settings:
        steps = ", ".join(dict.fromkeys(f"{run.env_steps[-1]:,.0f}" for run in setting.runs))
        means = ([last_value(run, name) for run in setting.runs] for name in there)
        rows.append([setting.label, str(len(setting.runs)), steps, *map(_mean, means)])
    return rows


def _mean(values: Sequence[float | None]) -> str:
    """Returns the mean with its interval, where there are seeds enough; empty: a run has no value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return ""
    about = summarise(np.asarray(known))
    interval = about.interval if len(known) >= MIN_SEEDS else None
    return f"{about.mean:.3g}" + (f" [{interval[0]:.3g}, {interval[1]:.3g}]" if interval else "")
