"""Results of a sweep: for each cell the mean over seeds, with its interval."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from launch.sweeps.grid import SEED, GridRun
from launch.sweeps.state import is_finished
from oni_jax.host.files import write_output
from oni_jax.ops.statistics import summarise
from oni_jax.runs.curves import COVERAGE, MIN_SEEDS, SUCCESS, UNLOCKED, last_value
from oni_jax.runs.run import Run

METRICS = ("mean_return", SUCCESS, UNLOCKED, COVERAGE)
FILE = "results.json"


def results(runs: Sequence[GridRun]) -> list[dict[str, Any]]:
    """Returns an entry for each cell with finished runs: `cell`, `runs`, `seeds`, and the metrics that its runs have.

    A metric is that of the last row, over the last --stats_avg episodes: `values` by run, their `mean`, and the
    bootstrap's 95 % `interval` of the mean; null with one run.

    Raises:
        UserError: a run's files are damaged.
    """
    found = []
    for cell in _unique(run.cell for run in runs):
        finished = [run for run in runs if run.cell == cell and is_finished(run)]
        if not finished:
            continue
        read = [Run(run.folder).metrics(METRICS, run.name) for run in finished]
        entry: dict[str, Any] = {
            "cell": cell,
            "runs": [run.name for run in finished],
            SEED + "s": [run.config.run.seed for run in finished],
        }
        for metric in METRICS:
            values = [value for one in read if (value := last_value(one, metric)) is not None]
            if len(values) == len(finished):
                entry[metric] = {"values": values, **estimate(values)}
        found.append(entry)
    return found


def estimate(values: Sequence[float]) -> dict[str, Any]:
    """Returns the mean of values over seeds, and the bootstrap's 95 % interval of it; None for fewer than MIN_SEEDS."""
    about = summarise(np.asarray(values))
    return {"mean": about.mean, "interval": list(about.interval or ()) if len(values) >= MIN_SEEDS else None}


def write(runs: Sequence[GridRun], folder: str) -> list[str]:
    """Writes results.json in the sweep's folder. Returns the lines of the table. Raises UserError."""
    found = results(runs)
    if not found:
        return []
    path = os.path.join(folder, FILE)
    write_output("train_dir", path, (json.dumps(found, indent=2) + "\n").encode())
    metrics = [metric for metric in METRICS if any(metric in entry for entry in found)]
    header = ["runs that differ in seed", "seeds", *(shown_name(metric) for metric in metrics)]
    rows = [
        [cell_label(entry["cell"]), str(len(entry["runs"])), *(shown(entry.get(metric)) for metric in metrics)]
        for entry in found
    ]
    return [*table(header, rows), f"[...]: 95 % interval of the mean over seeds, by the bootstrap; {path}"]


def cell_label(cell: Mapping[str, str]) -> str:
    return ", ".join(label if axis == "case" else f"{axis}={label}" for axis, label in cell.items()) or "all"


def shown_name(metric: str) -> str:
    return metric.rpartition("/")[2].replace("_", " ")


def shown(entry: Mapping[str, Any] | None) -> str:
    """Formats an estimate; empty for None."""
    if entry is None:
        return ""
    interval = entry["interval"]
    return f"{entry['mean']:.3g}" + (f" [{interval[0]:.3g}, {interval[1]:.3g}]" if interval else "")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table, aligned for terminals."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.ljust(width) for cell, width in zip(cells, widths))} |"

    return [line(header), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows)]


def _unique(cells: Any) -> list[Mapping[str, str]]:
    found: list[Mapping[str, str]] = []
    for cell in cells:
        if cell not in found:
            found.append(cell)
    return found
