"""Main contrasts of the studies: their effects, and which of all remain by Holm's correction."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.pages.estimates import Estimate, difference, distinct, end, over_the_run
from benchmarks.studies.base import AT_THE_END, OVER_THE_RUN, Contrast, Study
from benchmarks.studies.results import by_cell, by_task, counted, curve

SUMMARIES: Mapping[str, Callable[[np.ndarray], float]] = {AT_THE_END: end, OVER_THE_RUN: over_the_run}  # curve -> value


class Effect(NamedTuple):
    """A main contrast that was measured."""

    contrast: Contrast
    estimate: Estimate
    is_distinct: bool  # distinct by Holm's correction over all studies

    def shown(self) -> str:
        """Formats the effect, with a mark where it remains."""
        return self.estimate.shown("+") + r"\*" * self.is_distinct


def effects(studies: Sequence[Study]) -> dict[str, list[Effect]]:
    """Returns the effects of each study's main contrasts; none of those that lack seeds."""
    found = [
        (study.name, contrast, about)
        for study in studies
        for contrast in study.contrasts
        if (about := _difference(study, contrast))
    ]
    marks = distinct([about.p_value for _, _, about in found])
    by_study: dict[str, list[Effect]] = {study.name: [] for study in studies}
    for (name, contrast, about), mark in zip(found, marks):
        by_study[name].append(Effect(contrast, about, mark))
    return by_study


def _difference(study: Study, contrast: Contrast) -> Estimate | None:
    if contrast.held_out:
        if not study.episodes_path.exists():
            return None
        played = json.loads(study.episodes_path.read_text())
        case, reference = ([x[contrast.metric] for x in played[name]] for name in (contrast.case, contrast.reference))
        return difference(case, reference, paired=True)
    tasks = by_task(counted(study))
    cells = by_cell(tasks.get(contrast.task or next(iter(tasks), ""), []))
    metric, of = contrast.metric or study.metric, SUMMARIES[contrast.summary]
    case, reference = (
        [of(curve(run, metric)) for run in cells.get(x, [])] for x in (contrast.case, contrast.reference)
    )
    return difference(case, reference)
