"""The page docs/results.md: what was learnt, in which time and where, from the results in the repository."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import learning_parity
from benchmarks.studies import page
from benchmarks.studies.base import Study
from benchmarks.studies.results import counted
from launch.sweeps.results import shown, table

PAGE = page.DOCS / "results.md"
PARITY = page.FOLDER.parent / "learning_parity.json"
INTRODUCTION = """# Results

What is learnt here, in which time, on which machine. `python -m benchmarks.studies` makes this page from the files in
`benchmarks/studies/` and from `benchmarks/learning_parity.json`; nothing is left out of them because it came out badly.
[Studies](studies.md) has the command of each row, its curves, and how to read them.

**No result is an LLM's, and none is from a GPU, yet.** In `judge`, `code`, `pref` and `goal` fixed rules answered in an
LLM's stead; `oracle` and what was pretrained by it know the world's own rules.

## With and without

Means over seeds at the end of training, with the bootstrap's 95 % interval. The difference is to the first case of the
same task, with Welch's 95 % interval; where that holds 0, no difference is shown.
"""
PARITY_TEXT = """
## NetHack, against the published system

Type `none` on `NetHackScoreExtendedActions-v1`, 2 x 20 games, batches of 1,024: return, the policy's entropy, and the
policy lag in versions, means over seeds with their standard errors. The published system was recorded on another
machine and stops at 310 K steps. The rows below the defaults differ from them in one thing:
[what they say](measurements.md#learning-parity).

```sh
python -m benchmarks.learning_parity --json benchmarks/learning_parity.json  # needs hours
```
"""


def text(studies: Sequence[Study]) -> str:
    """Returns the Markdown of docs/results.md."""
    return "\n".join([INTRODUCTION, *_compared(studies), *_parity(), ""])


def _compared(studies: Sequence[Study]) -> Iterator[str]:
    for study in studies:
        found = counted(study)
        if not found["runs"]:
            continue
        yield from (f"### {study.name}", "", study.question, *([study.note] if study.note else []), "")
        for task, own in page.by_task(found).items():
            yield from (f"`{task}`, {page.limit(study, found)}, {_machines(found, own)}:", "")
            yield from (*_table(study, own), "", page.image_link(study, task), "")


def _table(study: Study, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    rows, first = [], None
    for label, own in page.by_cell(runs).items():
        curves = page.curves_of(study, own)
        ends = [float(curve[-1]) for curve in curves]
        compared = "" if first is None else _difference(ends, first)
        first = ends if first is None else first
        rows.append([label, str(len(own)), shown(page.at_the_end(curves)), compared, page.minutes(own)])
    return table(["", "seeds", f"{page.metric_name(study)} at the end", "difference", "minutes a run"], rows)


def _difference(values: Sequence[float], first: Sequence[float]) -> str:
    if min(len(values), len(first)) < 2:
        return ""
    interval = stats.ttest_ind(values, first, equal_var=False).confidence_interval()
    return f"{np.mean(values) - np.mean(first):+.3g} [{interval.low:.3g}, {interval.high:.3g}]"


def _machines(found: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> str:
    machines = [found["machines"][index] for index in sorted({run["machine"] for run in runs})]
    return " and ".join(dict.fromkeys(page.processor(machine) for machine in machines))


def _parity() -> Iterator[str]:
    yield PARITY_TEXT
    yield learning_parity.table(*parity_runs())


def parity_runs() -> list[list[dict[str, Any]]]:
    """Returns the runs of learning_parity, and the published system's."""
    return [json.loads(path.read_text())["runs"] for path in (PARITY, learning_parity.PUBLISHED_FILE)]
