"""The page of all studies, docs/studies.md, and its figures, from the results in the repository."""

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.studies.base import FOLDER, Study
from benchmarks.studies.results import counted
from launch import flags
from launch.sweeps.results import cell_label, estimate, shown, shown_name, table
from oni_jax.config import Config
from oni_jax.reporting.curves import COVERAGE, SUCCESS, UNLOCKED, Run, Setting
from oni_jax.reporting.panels import Panel, Scale
from oni_jax.reporting.plots import draw_panels, image

DOCS = FOLDER.parents[1] / "docs"
PAGE, IMAGES = DOCS / "studies.md", DOCS / "images" / "studies"
INTRODUCTION = """# Studies

Questions, each answered by a [sweep](sweeps.md) of runs that differ in one thing and in their seeds. The results are in
`benchmarks/studies/`, a JSON file each; `python -m benchmarks.studies` makes this page and its figures from them.

```sh
python -m benchmarks.studies list
python -m benchmarks.studies run catch_judge --jobs 2   # resumes, and adds to the results
```

An estimate is a mean over seeds with the bootstrap's 95 % interval, which is too narrow with five seeds or fewer. The
figures' lines are interquartile means over seeds, their bands the bootstrap's intervals of these. "At the end" is the
mean of the last episodes of training (`--stats_avg`); "over the run" is the mean of that over the steps, higher for
what learns sooner. "Steps to 80 %" are those to the first two of a curve's fifty points in a row that are above.
"""
PANELS = {
    "mean_return": Panel("mean_return", "Return, mean of the last {episodes}", "env_steps"),
    SUCCESS: Panel(SUCCESS, "Success rate of the last {episodes}", "env_steps", Scale.FRACTION),
    UNLOCKED: Panel(UNLOCKED, "Achievements in an episode, mean of the last {episodes}", "env_steps"),
}


def page(studies: Sequence[Study]) -> str:
    """Returns the Markdown of docs/studies.md."""
    return "\n".join([INTRODUCTION, *("\n".join(_section(study)) for study in studies)])


def figures(study: Study) -> dict[str, bytes]:
    """Draws a study's figures, one a task: name of the file -> PNG."""
    found = counted(study)
    return {_image_name(study, task): _figure(study, found, task, own) for task, own in by_task(found).items()}


def _section(study: Study) -> Iterator[str]:
    found = counted(study)
    yield from (f"## {study.name}", "", study.question, *([study.note] if study.note else []), "")
    yield from ("```sh", f"{study.command()}  # needs {study.duration}", "```", "")
    if not found["runs"]:
        yield from ("No results yet.", "")
    for task, runs in by_task(found).items():
        yield from (f"`{task}`, {limit(study, found)}:", "", *_table(study, runs, found[study.over]), "")
        yield from (image_link(study, task), "")
    if study.left_out:
        yield f"The first {study.left_out:,} {study.over} are left out: until then only short episodes have ended."
        yield ""
    for index, machine in enumerate(found["machines"]):
        dates = sorted({run["date"] for run in found["runs"] if run["machine"] == index})
        yield f"Measured on {_machine(machine)}; {' to '.join(dict.fromkeys((dates[0], dates[-1])))}."
        yield ""


def limit(study: Study, found: Mapping[str, Any]) -> str:
    """Returns where the runs end, in words."""
    return f"{found[study.over][-1]:,} {study.over}"


def _table(study: Study, runs: Sequence[Mapping[str, Any]], points: Sequence[int]) -> list[str]:
    name, rows, is_over_steps = metric_name(study), [], study.over == "steps"
    levels = study.levels if study.metric == SUCCESS and is_over_steps else ()
    others = [other for other in (COVERAGE, *study.also) if any(other in run for run in runs)]
    for label, own in by_cell(runs).items():
        curves = curves_of(study, own)
        about = [at_the_end(curves), estimate([float(np.nanmean(x)) for x in curves])]
        reached = [steps_to(level, curves, points) for level in levels]
        ends = [[float(curve[-1]) for run in own if (curve := run.get(other))] for other in others]
        also = [shown(estimate(values)) if values else "" for values in ends]
        cost = minutes(own) if is_over_steps else shown(estimate([run["env_steps"] / 1e6 for run in own]))
        rows.append([label, str(len(own)), *map(shown, about), *reached, *also, cost])
    more = [f"million steps to {level:.0%}" for level in levels]
    more += [f"{shown_name(other)} at the end" for other in others]
    more.append("minutes a run" if is_over_steps else "million steps a run")
    return table(["", "seeds", f"{name} at the end", f"{name} over the run", *more], rows)


def metric_name(study: Study) -> str:
    """Returns the name of the study's metric in words."""
    return shown_name(study.metric).removeprefix("mean ")


def steps_to(level: float, curves: Sequence[np.ndarray], steps: Sequence[int]) -> str:
    """Returns the steps to two points in a row above a level, of the runs that have them, and how many have."""
    above = [(curve[:-1] >= level) & (curve[1:] >= level) for curve in curves]
    found = [steps[int(np.argmax(own))] / 1e6 for own in above if own.any()]
    how_many = f" ({len(found)} of {len(curves)})" * (len(found) < len(curves))
    return shown(estimate(found)) + how_many if found else "never"


def _figure(study: Study, found: Mapping[str, Any], task: str, runs: Sequence[Mapping[str, Any]]) -> bytes:
    config = flags.parse([*shlex.split(study.flags), f"--root_env={task}"])
    settings = [
        Setting(label, tuple(_run(run, study, found[study.over], config) for run in own))
        for label, own in by_cell(runs).items()
    ]
    x = "env_steps" if study.over == "steps" else "hours"
    drawn = draw_panels([PANELS[study.metric]._replace(x=x)], settings)
    assert drawn is not None, f"{study.path}: no run has {study.metric}"
    return image(drawn, "png")


def _run(run: Mapping[str, Any], study: Study, points: Sequence[int], config: Config) -> Run:
    own = dataclasses.replace(config, run=dataclasses.replace(config.run, seed=run["seed"]))
    x = np.asarray(points, float)  # of both, only one of which is drawn
    return Run(run["name"], own, x, x / 3600, {study.metric: _curve(run, study.metric)})


def curves_of(study: Study, runs: Sequence[Mapping[str, Any]]) -> list[np.ndarray]:
    """Returns the runs' curves; NaN before their first values."""
    return [_curve(run, study.metric) for run in runs]


def _curve(run: Mapping[str, Any], metric: str) -> np.ndarray:
    return np.array(run[metric], float)  # null -> NaN


def at_the_end(curves: Sequence[np.ndarray]) -> dict[str, Any]:
    """Returns the estimate of the curves' last values."""
    return estimate([float(curve[-1]) for curve in curves])


def minutes(runs: Sequence[Mapping[str, Any]]) -> str:
    """Returns how many minutes a run took, on average."""
    return f"{sum(run['train_secs'] for run in runs) / len(runs) / 60:.2g}"


def by_cell(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the runs of each cell, by its label."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        found.setdefault(cell_label(run["cell"]), []).append(run)
    return found


def image_link(study: Study, task: str) -> str:
    """Returns the Markdown that shows a figure."""
    return f"![{metric_name(study)} against {study.over}](images/studies/{_image_name(study, task)})"


def by_task(found: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the runs of each task of a study's results."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for run in found["runs"]:
        runs.setdefault(run["task"], []).append(run)
    return runs


def _image_name(study: Study, task: str) -> str:
    return f"{study.name}_{task}.png"


def _machine(machine: Mapping[str, Any]) -> str:
    versions = ", ".join(
        f"{name} {machine['versions'][name]}" for name in ("jax", "flax") if name in machine["versions"]
    )
    return f"{processor(machine)}, Python {machine['python']}, {versions}, commit {machine['commit']}"


def processor(machine: Mapping[str, Any]) -> str:
    """Returns what a machine computes with."""
    return f"{machine['gpu']} and " * bool(machine["gpu"]) + f"{machine['num_cores']} cores of {machine['cpu']}"
