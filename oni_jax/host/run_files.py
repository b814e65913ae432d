"""Files of a run that say how far it has come. Without JAX, which takes seconds to import."""

import json
import os
from collections.abc import Mapping
from typing import Any

from oni_jax.settings.run import RunConfig

SETTINGS, SUMMARY, METRICS, CHECKPOINTS = "config.json", "summary.json", "metrics.jsonl", "checkpoints"
TRAINED = "reward_model"  # folder of a model that was trained beforehand
LOCK = "lock"  # locked while a process trains
# How a start ended: `state` in the summary.
FINISHED, STOPPED, DIED, UNSAVED = "finished", "stopped", "died", "unsaved"
_ROW_BYTES = 1 << 16  # upper bound of a row of metrics


def checkpoint_steps(directory: str) -> list[int]:
    """Returns the steps of the folders that are named as checkpoints, ascending."""
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return sorted(int(name) for name in names if name.isdecimal() and os.path.isdir(os.path.join(directory, name)))


def saved_steps(folder: str) -> list[int]:
    """Returns the environment steps of the checkpoints of the run in a folder, ascending."""
    return checkpoint_steps(os.path.join(folder, CHECKPOINTS))


def summary(folder: str) -> Mapping[str, Any]:
    """Reads summary.json; {} when there is none, or it is damaged."""
    try:
        with open(os.path.join(folder, SUMMARY), "rb") as file:
            return _object(file.read())
    except OSError:
        return {}


def trained_at(folder: str) -> int:
    """Returns when the trained model in a folder was saved last, in nanoseconds; 0: there is none."""
    try:
        return os.stat(os.path.join(folder, TRAINED)).st_mtime_ns
    except OSError:
        return 0


def last_row(folder: str) -> Mapping[str, Any]:
    """Reads the newest row of metrics; {} before there is one."""
    try:
        with open(os.path.join(folder, METRICS), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _ROW_BYTES))
            lines = file.read().split(b"\n")[:-1]  # an unfinished last one is being written
    except OSError:
        return {}
    return _object(lines[-1]) if lines else {}


def saved_secs(folder: str) -> float:
    """Returns the seconds of training that the newest checkpoint of a run holds; 0: there is none."""
    newest = str(max(saved_steps(folder), default=0))
    try:
        with open(os.path.join(folder, CHECKPOINTS, newest, "progress", "metadata"), "rb") as file:
            return float(_object(file.read()).get("train_secs", 0.0))
    except OSError:
        return 0.0


def fraction_done(limits: RunConfig, env_steps: float, secs: float) -> float:
    """Returns how much of a run is done, in [0, 1], by the limit that comes first."""
    return min(1.0, max(env_steps / limits.train_for_env_steps, secs / limits.train_for_seconds))


def ended_at(folder: str) -> tuple[int, float]:
    """Returns the environment steps and seconds of a run that has ended, as far as its newest checkpoint holds them."""
    found, saved = summary(folder), max(saved_steps(folder), default=0)
    steps, secs = found.get("env_steps", 0), found.get("train_secs", 0.0)
    return (steps, secs) if steps <= saved else (saved, min(secs, saved_secs(folder)))


def steps_are_done(limits: RunConfig, folder: str) -> bool:
    """Returns whether the run in a folder has reached its limit of steps, and ended."""
    return ended_at(folder)[0] >= limits.train_for_env_steps


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
