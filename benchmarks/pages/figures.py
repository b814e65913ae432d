"""Figures of the studies, from their results in the repository."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.studies.base import FOLDER, Study, matches
from benchmarks.studies.results import by_cell, by_task, counted, curve
from launch import flags
from oni_jax.runs.curves import SUCCESS, UNLOCKED, Curves, Setting
from oni_jax.settings.config import Config
from oni_jax.show.report.panels import Panel, Scale
from oni_jax.show.report.plots import draw_panels, image

IMAGES = FOLDER.parents[1] / "docs" / "images" / "studies"
PANELS = {
    "mean_return": Panel("mean_return", "Return, mean of the last {episodes}", "env_steps"),
    SUCCESS: Panel(SUCCESS, "Success rate of the last {episodes}", "env_steps", Scale.FRACTION),
    UNLOCKED: Panel(UNLOCKED, "Achievements in an episode, mean of the last {episodes}", "env_steps"),
}


def figures(study: Study) -> dict[str, bytes]:
    """Draws a study's figures: name of the file -> PNG."""
    found = counted(study)
    return {
        name: _figure(study, found, task, runs, patterns)
        for task, runs in by_task(found).items()
        for name, patterns in images(study, task, runs).items()
    }


def images(study: Study, task: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Returns the names of the files of a task's figures, and the patterns of their cases; without runs: none."""
    found = {}
    for number, patterns in enumerate(map(str.split, study.drawn), 1):
        if any(matches(label, patterns) for label in by_cell(runs)):
            suffix = f"_{number}" * (len(study.drawn) > 1)
            found[f"{study.name}_{task}{suffix}.png"] = patterns
    return found


def _figure(
    study: Study, found: Mapping[str, Any], task: str, runs: Sequence[Mapping[str, Any]], patterns: Sequence[str]
) -> bytes:
    config = flags.parse([*shlex.split(study.flags), f"--root_env={task}"])
    settings = [
        Setting(label, tuple(_run(run, study, found[study.over], config) for run in case_runs))
        for label, case_runs in by_cell(runs).items()
        if matches(label, patterns)
    ]
    x = "env_steps" if study.over == "steps" else "hours"
    drawn = draw_panels([PANELS[study.metric]._replace(x=x)], settings)
    assert drawn is not None, f"{study.path}: no run has {study.metric}"
    return image(drawn, "png")


def _run(run: Mapping[str, Any], study: Study, points: Sequence[int], config: Config) -> Curves:
    seeded = dataclasses.replace(config, run=dataclasses.replace(config.run, seed=run["seed"]))
    x = np.asarray(points, float)  # of both, only one of which is drawn
    return Curves(run["name"], seeded, x, x / 3600, {study.metric: curve(run, study.metric)})
