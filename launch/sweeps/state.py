"""Progress of a run, from the files in its folder."""

import json
import os
from collections.abc import Mapping
from typing import Any

from launch.sweeps.grid import GridRun

LOG = "output.log"
_ROW_BYTES = 1 << 16  # upper bound of a row of metrics


def summary(run: GridRun) -> Mapping[str, Any]:
    """Reads the run's summary.json; {} when there is none, or it is damaged."""
    try:
        with open(os.path.join(run.folder, "summary.json"), "rb") as file:
            return _object(file.read())
    except OSError:
        return {}


def last_row(run: GridRun) -> Mapping[str, Any]:
    """Reads the run's newest row of metrics; {} before there is one."""
    try:
        with open(os.path.join(run.folder, "metrics.jsonl"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _ROW_BYTES))
            lines = file.read().split(b"\n")[:-1]  # an unfinished last one is being written
    except OSError:
        return {}
    return _object(lines[-1]) if lines else {}


def last_line(path: str) -> str:
    """Returns the last line of a log that is not empty."""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _ROW_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def fraction_done(run: GridRun, env_steps: float, secs: float) -> float:
    """Returns how much of the run is done, in [0, 1], by the limit that comes first."""
    limits = run.config.run
    return min(1.0, max(env_steps / limits.train_for_env_steps, secs / limits.train_for_seconds))


def is_finished(run: GridRun) -> bool:
    """Returns whether the run has reached one of its limits. A time limit counts over all starts."""
    found = summary(run)
    return bool(found) and fraction_done(run, found.get("env_steps", 0), found.get("train_secs", 0.0)) >= 1


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
