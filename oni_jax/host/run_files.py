"""Files of a run that say how far it has come. Without JAX, which takes seconds to import."""

import contextlib
import math
import os
import uuid
from collections.abc import Mapping
from typing import Any

from oni_jax.host.files import open_regular, read_regular
from oni_jax.settings.json_text import RUN_ID, parsed_object
from oni_jax.settings.run import RunConfig

SETTINGS, SUMMARY, METRICS, CHECKPOINTS = "config.json", "summary.json", "metrics.jsonl", "checkpoints"
TRAINED = "reward_model"  # folder of a model that was trained beforehand
LOCK = "lock"  # locked while a process trains
# Ends of a start: `state` in the summary.
FINISHED, STOPPED, DIED, UNSAVED = "finished", "stopped", "died", "unsaved"
_ROW_BYTES = 1 << 16  # upper bound of a row of metrics
_MAX_BYTES = 1 << 26  # bound on a summary, and on the notes of a checkpoint
_TEXTS = (
    "state",
    "commit",
    "labels_by",
    "server_state",
    "limited_by",
    "annotation/problem",
)  # texts of summaries and rows; all else are numbers


def checkpoint_steps(directory: str) -> list[int]:
    """Returns the steps of the folders that are named as checkpoints, ascending."""
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return sorted(int(name) for name in names if name.isdecimal() and os.path.isdir(os.path.join(directory, name)))


def saved_steps(folder: str) -> list[int]:
    """Returns the environment steps of the checkpoints of the run in a folder, ascending."""
    return checkpoint_steps(os.path.join(folder, CHECKPOINTS))


def run_id(folder: str) -> str:
    """Returns the id of the run in a folder; empty: it is of an earlier version, or its settings can't be read."""
    settings = _read(os.path.join(folder, SETTINGS)).get("run")
    return _id_in(settings) if isinstance(settings, Mapping) else ""


def kept_run_id(folder: str) -> str:
    """Returns the id that the run in a folder has from now on: that of its settings, else of its newest checkpoint.

    Without both, it is a new one; a run of an earlier version has none.
    """
    path = os.path.join(folder, SETTINGS)
    if _read(path):
        return run_id(folder)
    is_new = not saved_steps(folder) and not os.path.lexists(path)
    return uuid.uuid4().hex[:16] if is_new else _id_in(_newest_progress(folder))


def is_of_run(found: Mapping[str, Any], run: str) -> bool:
    """Returns whether an object may be of the run of this id: where one of them has none, it may be of any."""
    return not run or (found.get(RUN_ID) or run) == run


def check_run_id(found: Mapping[str, Any], run: str) -> None:
    """Raises ValueError: an object is of another run, see `is_of_run`."""
    if not is_of_run(found, run):
        raise ValueError("it is of another run")


def _id_in(found: Mapping[str, Any]) -> str:
    return x if isinstance(x := found.get(RUN_ID), str) else ""


def summary(folder: str) -> Mapping[str, Any]:
    """Reads the numbers and texts of summary.json; {} when there is none, or it is damaged, or another run's."""
    return _plain(_summary(folder))


def is_damaged(folder: str) -> bool:
    """Returns whether there is a summary.json that is none, or another run's."""
    return os.path.lexists(os.path.join(folder, SUMMARY)) and not _summary(folder)


def _summary(folder: str) -> Mapping[str, Any]:
    return _read(os.path.join(folder, SUMMARY), run_id(folder))


def trained_at(folder: str) -> int:
    """Returns when the trained model in a folder was saved last, in nanoseconds; 0: there is none."""
    try:
        return os.stat(os.path.join(folder, TRAINED)).st_mtime_ns
    except OSError:
        return 0


def last_row(folder: str) -> Mapping[str, Any]:
    """Reads the numbers and texts of the newest row of metrics that is whole, and of this run; {}: there is none."""
    try:
        with open_regular(os.path.join(folder, METRICS)) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _ROW_BYTES))
            lines = file.read().split(b"\n")[:-1]  # an unfinished last one is being written
    except OSError:
        return {}
    run = run_id(folder)
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            check_run_id(row := parsed_object(line), run)
            return _plain(row)
    return {}


def saved_secs(folder: str) -> float:
    """Returns the seconds of training that the newest checkpoint of a run holds; 0: there is none."""
    return float(_number(_newest_progress(folder), "train_secs"))


def _newest_progress(folder: str) -> Mapping[str, Any]:
    newest = str(max(saved_steps(folder), default=0))
    return _read(os.path.join(folder, CHECKPOINTS, newest, "progress", "metadata"), run_id(folder))


def fraction_done(limits: RunConfig, env_steps: float, secs: float) -> float:
    """Returns how much of a run is done, in [0, 1], by the limit that comes first."""
    return min(1.0, max(env_steps / limits.train_for_env_steps, secs / limits.train_for_seconds))


def ended_at(folder: str) -> tuple[int, float]:
    """Returns the environment steps and seconds of a run that has ended, as far as its newest checkpoint holds them."""
    found, saved = summary(folder), max(saved_steps(folder), default=0)
    steps, secs = int(_number(found, "env_steps")), float(_number(found, "train_secs"))
    return (steps, secs) if steps <= saved else (saved, min(secs, saved_secs(folder)))


def steps_are_done(limits: RunConfig, folder: str) -> bool:
    """Returns whether the run in a folder has reached its limit of steps, and ended."""
    return ended_at(folder)[0] >= limits.train_for_env_steps


def _number(found: Mapping[str, Any], name: str) -> float:
    """Returns a number that counts something; 0 in place of anything else that a damaged file holds."""
    value = found.get(name, 0)
    return value if isinstance(value, int | float) and 0 <= value < math.inf and value is not True else 0


def _read(path: str, run: str = "") -> dict[str, Any]:
    """Reads a JSON object; {} when it is damaged, or of another run than that of this id, or no such file."""
    try:
        check_run_id(found := parsed_object(read_regular(path, _MAX_BYTES)), run)
        return found
    except (OSError, ValueError):
        return {}


def _plain(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns those values that are of the type that their name stands for."""
    return {name: x for name, x in found.items() if type(x) in ((str,) if name in _TEXTS else (int, float))}
