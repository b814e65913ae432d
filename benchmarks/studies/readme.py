"""The README's table of what is learnt, from the results in the repository."""

import statistics
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from benchmarks import learning_parity
from benchmarks.studies import page
from benchmarks.studies.base import FOLDER, Study
from benchmarks.studies.overview import parity_runs
from benchmarks.studies.results import counted
from launch.sweeps.results import shown, table

PATH = FOLDER.parents[1] / "README.md"
BEGINS, ENDS = "<!-- made by `python -m benchmarks.studies` -->\n", "<!-- end -->\n"
HEADER = ["on two CPU cores, no GPU", "without", "with", "minutes"]
PARITY_STEPS = 300_000


class Line(NamedTuple):
    """Cases of a study's task: the first one, and those beside it."""

    what: str
    study: str
    task: str
    without: str  # case
    cases: Mapping[str, str]  # case -> what it is
    level: float | None = None  # of success, the steps to which are shown; None: the value at the end


LINES = (
    Line(
        "achievements in an episode of Crafter, without its rewards, 5 M steps",
        "ellm",
        "CrafterTextEnv-v1",
        "no_reward",
        {"oracle": "goals by the world's rules", "judge": "goals by the judge"},
    ),
    Line(
        "success at a wooden pickaxe there, 1 M steps",
        "ellm_task",
        "CrafterTextEnv-v1",
        "scratch",
        {"tuned": "pretrained on goals"},
    ),
    Line(
        "million steps to 50 % success, BabyAI-Text PickUp",
        "bk",
        "BabyAI-Text-PickUp-RedBall-S20",
        "none",
        {"goal": "BK-Goal", "code": "BK-Code"},
        level=0.5,
    ),
)


def with_table(text: str, studies: Mapping[str, Study]) -> str:
    """Returns the README's text with its table made again."""
    before, begins, rest = text.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    assert begins and ends, f"{PATH} needs {BEGINS!r} and {ENDS!r}"
    rows = [row for line in LINES for row in _rows(line, studies[line.study])]
    lines = table(HEADER, [*rows, _parity_row()])
    return before + begins + "\n".join(lines) + "\n" + ends + after


def _rows(line: Line, study: Study) -> Iterator[list[str]]:
    found = counted(study)
    cells = page.by_cell(page.by_task(found)[line.task])

    def value(label: str) -> str:
        curves = page.curves_of(study, cells[label])
        if line.level is not None:
            return page.steps_to(line.level, curves, found["steps"])
        return shown(page.at_the_end(curves))

    before = [line.what, value(line.without)]
    for label, text in line.cases.items():
        yield [*before, f"{text} {value(label)}", page.minutes(cells[label])]
        before = ["", ""]


def _parity_row() -> list[str]:
    runs, published = parity_runs()
    here = [run for run in runs if run["side"] == "defaults"]
    estimates = [
        learning_parity.estimate([run["curves"]["return"] for run in own], PARITY_STEPS) for own in (published, here)
    ]
    minutes = statistics.mean(PARITY_STEPS / run["env_steps_per_sec"] for run in here) / 60
    what = f"return on NetHack's score without an LLM, {PARITY_STEPS / 1e6:g} M steps"
    return [what, f"published system {estimates[0]}", f"here {estimates[1]}", f"{minutes:.2g}"]
