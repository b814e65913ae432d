"""Results of a study: curves of its finished runs in a compact JSON file, to which later runs are added."""

import datetime
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import MACHINE, environment
from benchmarks.studies.base import Study
from launch.sweeps.grid import GridRun
from launch.sweeps.results import METRICS, cell_label
from launch.sweeps.state import is_finished
from oni_jax.host.files import write_atomically
from oni_jax.host.run_files import SUMMARY, summary
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError

NUM_POINTS = 50  # points of a curve
NUM_DIGITS = 4  # significant ones


def load(study: Study) -> dict[str, Any]:
    """Reads a study's results.

    Returns:
        `flags` and `cases` of the study; `steps` or `seconds` [NUM_POINTS] of the curves' points; `machines`; and
        `runs`: name, `cell`, `seed`, `task`, `train_secs`, `env_steps` (not of the oldest), `date`, index of the
        machine, and a curve [NUM_POINTS] for each metric, null before the first episode has ended. No runs when there
        is no file yet.

    Raises:
        UserError: the results are of other settings, or can't be read.
    """
    new = {"flags": study.flags, "cases": dict(_case(case) for case in study.cases)}
    if not study.path.exists():
        return {**new, study.over: [], "machines": [], "runs": []}
    try:
        found = json.loads(study.path.read_text())
        other_case = any(found["cases"].get(label, text) != text for label, text in new["cases"].items())
        is_other = found["flags"] != new["flags"] or other_case
        found["machines"], found["runs"], found[study.over]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        words = " ".join(str(error).split())[:100]
        raise UserError(f"{study.path}: is damaged ({type(error).__name__}: {words}); restore or remove it") from None
    if is_other:
        raise UserError(f"{study.path}: was measured with other flags; remove it to measure again")
    return {**found, "cases": {**found["cases"], **new["cases"]}}


def counted(study: Study) -> dict[str, Any]:
    """Reads a study's results as the pages show them, without the points left out. Raises UserError."""
    found = load(study)
    num_left_out = sum(point <= study.left_out for point in found[study.over])

    def cut(name: str, entry: Any) -> Any:
        return [None] * num_left_out + entry[num_left_out:] if name in _metrics(study) else entry

    return {**found, "runs": [{name: cut(name, x) for name, x in run.items()} for run in found["runs"]]}


def known(found: Mapping[str, Any]) -> set[str]:
    """Returns the names of the runs that are in a study's results."""
    return {run["name"] for run in found["runs"]}


def collect(study: Study, train_dir: str) -> int:
    """Adds finished runs below `train_dir` to the study's results. Returns how many are new. Raises UserError."""
    found = load(study)
    there = known(found)
    new = [run for run in study.runs(train_dir) if run.name not in there and is_finished(run)]
    if not new:
        return 0
    machine = {name: value for name, value in environment().items() if name in MACHINE}
    trained_on = [{**machine, "commit": summary(run.folder).get("commit") or machine["commit"]} for run in new]
    found["machines"] += [host for i, host in enumerate(trained_on) if host not in found["machines"] + trained_on[:i]]
    limits = new[0].config.run
    limit = limits.train_for_env_steps if study.over == "steps" else limits.train_for_seconds
    found[study.over] = found[study.over] or [round(limit * (i + 1) / NUM_POINTS) for i in range(NUM_POINTS)]
    found["runs"] += [
        _entry(run, study, found[study.over], found["machines"].index(host)) for run, host in zip(new, trained_on)
    ]
    order = [run.name for run in study.runs(train_dir)]
    found["runs"].sort(key=lambda run: order.index(run["name"]) if run["name"] in order else len(order))
    write_atomically(study.path, _text(found).encode())
    return len(new)


def missing(study: Study, found: Mapping[str, Any]) -> dict[str, int]:
    """Returns how many of a study's runs its results lack, by case, and by task where it has several."""
    there, planned = known(found), study.planned()
    several = len({labels.get("root_env") for labels in planned.values()}) > 1
    lacking: dict[str, int] = {}
    for name, labels in planned.items():
        if name not in there:
            where = f" on `{labels.get('root_env')}`" * several
            label = f"`{labels.get('case', name)}`{where}"
            lacking[label] = lacking.get(label, 0) + 1
    return lacking


def by_task(found: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the runs of each task of a study's results."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for run in found["runs"]:
        runs.setdefault(run["task"], []).append(run)
    return runs


def by_cell(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        found.setdefault(cell_label(run["cell"]), []).append(run)
    return found


def curve(run: Mapping[str, Any], metric: str) -> np.ndarray:
    """Returns a run's curve [NUM_POINTS]; NaN before the first episode has ended."""
    return np.array(run[metric], float)  # null -> NaN


def machine_words(machine: Mapping[str, Any]) -> str:
    """Returns what a machine computes with, its versions, and the commit."""
    versions = (f"{name} {machine['versions'][name]}" for name in ("jax", "flax") if name in machine["versions"])
    gpu = f"{machine['gpu']} and " * bool(machine["gpu"])
    cores = f"{machine['num_cores']} cores of {machine['cpu']}"
    return f"{gpu}{cores}, Python {machine['python']}, {', '.join(versions)}, commit {machine['commit']}"


def _metrics(study: Study) -> tuple[str, ...]:
    return (*METRICS, *study.also)


def _case(text: str) -> tuple[str, str]:
    label, _, words = text.partition(":")
    return label, words.strip()


def _entry(run: GridRun, study: Study, points: Sequence[int], machine: int) -> dict[str, Any]:
    metrics = _metrics(study)
    read = Run(run.folder).metrics(metrics, run.name)
    ended, end = pathlib.Path(run.folder, SUMMARY), summary(run.folder)
    entry = {
        "name": run.name,
        "cell": {axis: label for axis, label in run.cell.items() if axis != "root_env"},
        "seed": run.config.run.seed,
        "task": run.config.env.root_env,
        "train_secs": round(end["train_secs"], 1),
        "env_steps": end["env_steps"],
        "date": datetime.date.fromtimestamp(os.path.getmtime(ended)).isoformat(),
        "machine": machine,
    }
    x = read.env_steps if study.over == "steps" else read.hours * 3600
    curves = {metric: _curve(x, read.metrics[metric], points) for metric in metrics if metric in read.metrics}
    return {**entry, **curves}


def _curve(x: np.ndarray, values: np.ndarray, points: Sequence[int]) -> list[float | None]:
    """Interpolates values [R] at x [R] to `points`; null before the first value."""
    there = np.isfinite(values)
    at = np.interp(points, x[there], values[there], left=np.nan)
    return [None if np.isnan(value) else float(f"{value:.{NUM_DIGITS}g}") for value in at]


def _text(found: Mapping[str, Any]) -> str:
    """Formats results with a line for each run, so that a change of the file can be read."""
    lists = [
        f'  "{name}": [\n' + ",\n".join(f"    {json.dumps(entry)}" for entry in found[name]) + "\n  ]"
        for name in ("machines", "runs")
    ]
    others = [f'  "{name}": {json.dumps(found[name])}' for name in found if name not in ("machines", "runs")]
    return "{\n" + ",\n".join([*others, *lists]) + "\n}\n"
