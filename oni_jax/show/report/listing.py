"""A line for each run in a folder, from its files. Without JAX, which takes seconds to import."""

import contextlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from oni_jax.host.run_files import (
    CHECKPOINTS,
    DIED,
    FINISHED,
    METRICS,
    SETTINGS,
    STOPPED,
    SUMMARY,
    UNSAVED,
    fraction_done,
    is_damaged,
    last_row,
    saved_steps,
    summary,
)
from oni_jax.runs.experiment import is_running
from oni_jax.runs.labels import asked, labels_by
from oni_jax.runs.plan import Plan
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, printable

RUNNING, DAMAGED = "running", "damaged"  # the latter: its summary is none
PLOTS = "plots"  # folder of launch.plot
MAX_DEPTH = 3  # depth of folders in which runs are sought, such as a sweep's
HEADER = ("run", "state", "env", "steps", "return", "reward", "labels by", "age")
SHRINK = ("labels by", "env", "reward")  # the longest gives way; after them the name
MIN_WIDTH = 6
GAP = " "


class ListedRun(NamedTuple):
    """A run, as its files show it."""

    name: str  # its folder, in the one that was asked for
    state: str
    root_env: str
    env_steps: int  # steps that it would go on from; of a running one: so far
    asked_steps: int
    mean_return: float | None  # None: no episode has ended
    num_episodes: int  # number of episodes in the mean
    reward: str
    labels_by: str  # empty: nobody, or not known yet
    written: float  # time of the newest file


def run_folder(train_dir: str, name: str) -> str:
    """Returns the folder of a run or of a sweep, by its name in `train_dir`, or by its path."""
    inside = os.path.join(train_dir, name)
    return name if os.path.isdir(name) and not os.path.isdir(inside) else inside


def runs_inside(folder: str) -> list[str]:
    """Returns the names, sorted, of a sweep's runs in its folder; none where that is a run itself, or no folder."""
    if os.path.exists(os.path.join(folder, SETTINGS)):
        return []
    return sorted(_find(folder)[0], key=_by_numbers)


def list_runs(folder: str) -> tuple[list[ListedRun], list[str]]:
    """Lists the runs in a folder and the folders in it, sorted by name; or the one that the folder is.

    Returns:
        The runs, and a line for each folder that was skipped, with the reason.

    Raises:
        UserError: there is no such folder.
    """
    if not os.path.isdir(folder):
        raise UserError(f"{folder}: there is no such folder; name one that holds runs")
    if os.path.exists(os.path.join(folder, SETTINGS)):
        names, foreign = [os.path.basename(os.path.abspath(folder))], []
        folder = os.path.dirname(os.path.abspath(folder))
    else:
        names, foreign = _find(folder)
    starting = [is_running(os.path.join(folder, name)) for name in foreign]
    runs, skipped = [], [f"{printable(x)}: {'a run that starts' if y else 'no run'}" for x, y in zip(foreign, starting)]
    for name in sorted(names, key=_by_numbers):
        try:
            runs.append(read_listed(os.path.join(folder, name), name))
        except UserError as error:
            skipped.append(printable(str(error)))
    return runs, skipped


def read_listed(folder: str, name: str) -> ListedRun:
    """Reads what is listed of the run in a folder. Raises UserError: its settings can't be read."""
    config, row, ended = Run(folder).config, last_row(folder), summary(folder)
    saved, running = saved_steps(folder), is_running(folder)
    so_far = int(_number(row, "env_steps") or 0)
    steps = max([so_far, *saved]) if running else max(saved, default=so_far)
    mean = _number(row, "mean_return")
    has_rows = os.path.lexists(metrics := os.path.join(folder, METRICS)) and os.lstat(metrics).st_size > 0
    is_imported = bool(saved) and not has_rows
    return ListedRun(
        name=printable(name),
        state=RUNNING if running else DAMAGED if is_damaged(folder) else _state(config, row, ended, is_imported),
        root_env=printable(config.env.root_env),
        env_steps=steps,
        asked_steps=config.run.train_for_env_steps,
        mean_return=mean,
        num_episodes=0 if mean is None else min(config.run.stats_avg, int(_number(row, "episodes") or 0)),
        reward=printable(",".join(term.reward.llm_reward_type for term in config.terms())),
        labels_by=printable(_labels_by(config, folder)) if "labels_held" in row else "",
        written=max(_written(folder)),
    )


def _labels_by(config: Config, folder: str) -> str:
    """Returns who made a run's labels, in few words where it has asked nobody else earlier."""
    plan = Plan(config)  # runs no code that lies in a run's folder
    of_all, short = labels_by(plan, folder), ", ".join(asked(plan, short=True).values())
    return short if of_all == ", ".join(asked(plan).values()) else of_all


def table(runs: Sequence[ListedRun], width: int, now: float) -> list[str]:
    """Returns a header and a line for each run, of at most `width` columns where possible.

    Args:
        runs: runs to show.
        width: columns of the terminal.
        now: time, as `time.time` returns it.
    """
    rows = cells(runs, now)
    widths = {name: max(map(len, column)) for name, column in zip(HEADER, zip(*rows))}
    while sum(widths.values()) + len(GAP) * (len(HEADER) - 1) > width:
        name = max(SHRINK, key=widths.__getitem__)
        if widths[name] <= MIN_WIDTH:
            name = HEADER[0]
        if widths[name] <= MIN_WIDTH:
            break
        widths[name] -= 1
    return [GAP.join(map(_fitted, row, widths.values())).rstrip() for row in rows]


def cells(runs: Sequence[ListedRun], now: float) -> list[tuple[str, ...]]:
    """Returns a header and a row of texts for each run."""
    return [HEADER, *(_cells(run, now) for run in runs)]


def _find(folder: str, depth: int = 1) -> tuple[list[str], list[str]]:
    """Returns the names of the folders in `folder` that hold a run, and of those that hold none."""
    names: list[str] = []
    foreign: list[str] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith(".") or not entry.is_dir():
                continue
            if os.path.exists(os.path.join(entry.path, SETTINGS)):
                names.append(entry.name)
                continue
            inside = _find(entry.path, depth + 1)[0] if depth < MAX_DEPTH else []
            names += [os.path.join(entry.name, name) for name in inside]
            foreign += [] if inside else [entry.name]
    return names, foreign


def _by_numbers(name: str) -> list[tuple[float, str]]:
    """Sorts seed=2 before seed=10, and 0.05 before 0.1."""
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [(float(part), "") if index % 2 else (-1.0, part) for index, part in enumerate(parts)]


def _number(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _state(config: Config, row: Mapping[str, Any], ended: Mapping[str, Any], is_imported: bool) -> str:
    """Returns the state of a run that no process trains: that of its summary, unless it went on without one."""
    steps = _number(ended, "env_steps")
    if steps is None:
        return STOPPED if is_imported else DIED
    if (_number(row, "env_steps") or 0) > steps:
        return DIED
    if (state := ended.get("state")) in (FINISHED, STOPPED, DIED, UNSAVED):
        return state
    return FINISHED if fraction_done(config.run, steps, _number(ended, "train_secs") or 0.0) >= 1 else STOPPED


def _written(folder: str) -> Iterator[float]:
    for name in (SETTINGS, METRICS, SUMMARY, CHECKPOINTS):
        with contextlib.suppress(OSError):
            yield os.path.getmtime(os.path.join(folder, name))


def _cells(run: ListedRun, now: float) -> tuple[str, ...]:
    mean = "" if run.mean_return is None else f"{run.mean_return:.4g} ({run.num_episodes})"
    steps = f"{_short(run.env_steps)}/{_short(run.asked_steps)}"
    return run.name, run.state, run.root_env, steps, mean, run.reward, run.labels_by, _age(now - run.written)


def _short(number: float) -> str:
    """Returns a count in four digits: 1.234M."""
    for suffix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.4g}{suffix}" if number < 1e13 else f"{number:.0e}"
    return f"{number:.0f}"


def _age(secs: float) -> str:
    for suffix, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if secs >= size:
            return f"{secs // size:.0f}{suffix}"
    return f"{max(0, secs):.0f}s"


def _fitted(text: str, width: int) -> str:
    """Returns a text of this width; what a longer one lacks in its middle is shown by a sign."""
    if len(text) > width:
        end = (width - 1) // 2
        text = f"{text[: width - 1 - end]}…{text[len(text) - end :]}"
    return text.ljust(width)
