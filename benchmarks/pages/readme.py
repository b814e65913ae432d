"""The README's table of what is learnt, from the results in the repository."""

import statistics
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from benchmarks import learning_parity
from benchmarks.pages import page
from benchmarks.pages.other_results import PARITY, runs_of
from benchmarks.studies.base import FOLDER, Study
from benchmarks.studies.results import by_cell, by_task, counted
from launch.sweeps.results import table
from oni_jax.settings.fields import UserError

PATH = FOLDER.parents[1] / "README.md"
BEGINS, ENDS = "<!-- made by `python -m benchmarks.studies` -->\n", "<!-- end -->\n"
HEADER = ["five seeds: mean [95 %], time of a run; two runs at a time on two CPU cores, no GPU", "without", "with"]
PARITY_STEPS = 300_000


class Line(NamedTuple):
    """Cases of a study's task: the first one, and those beside it."""

    what: str
    study: str
    task: str
    without: str  # case
    without_is: str
    cases: Mapping[str, str]  # case -> what it is


LINES = (
    Line(
        "achievements in an episode of Crafter, without its reward, 5 M steps",
        "ellm",
        "CrafterTextEnv-v1",
        "no_reward",
        "no reward",
        {
            "model": "goals by a model of a language model's recorded answers",
            "answers": "goals by those answers alone",
            "oracle": "goals by the world's rules",
            "all_actions": "all actions for goals, asking nobody",
            "judge": "goals by fixed rules",
        },
    ),
    Line(
        "the same by Crafter's original rules",
        "crafter",
        "Crafter-v1",
        "rnd_alone",
        "curiosity (RND)",
        {
            "count_alone": "every event, asking nobody",
            "judge_alone": "labels of events by fixed rules",
            "none": "to compare: the world's reward",
        },
    ),
    Line(
        "fraction of episodes with a wooden pickaxe, 1 M steps",
        "ellm_task",
        "CrafterTextEnv-v1",
        "scratch",
        "from scratch",
        {"tuned": "after 5 M steps more on goals by the world's rules, the pickaxe among them"},
    ),
)


def with_table(text: str, studies: Mapping[str, Study]) -> str:
    """Returns the README's text with its table, and the sentence after it, made again. Raises UserError."""
    before, begins, rest = text.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    assert begins and ends, f"{PATH} needs {BEGINS!r} and {ENDS!r}"
    lines = table(HEADER, [row for line in LINES for row in _rows(line, studies[line.study])])
    return before + begins + "\n".join([*lines, "", _parity(), ""]) + ends + after


def _rows(line: Line, study: Study) -> Iterator[list[str]]:
    found = counted(study)
    cells = by_cell(by_task(found).get(line.task, []))
    if lacking := {line.without, *line.cases} - cells.keys():
        raise UserError(f"{study.path}: the README needs its {', '.join(sorted(lacking))}; restore it")

    def value(label: str) -> str:
        return f"{page.at_the_end(cells[label], study.metric)}; {page.time(cells[label])}"

    before = [line.what, f"{line.without_is} {value(line.without)}"]
    for label, text in line.cases.items():
        yield [*before, f"{text} {value(label)}"]
        before = ["", ""]


def _parity() -> str:
    sides = [runs_of(path) for path in (PARITY, learning_parity.PUBLISHED_FILE)]
    measured, known = (
        learning_parity.estimate([run["curves"]["return"] for run in side], PARITY_STEPS) for side in sides
    )
    here, published = sides
    newest = max(run["environment"] for run in here)
    speed = statistics.median(run["env_steps_per_sec"] for run in here if run["environment"] == newest)
    return (
        f"NetHack's score, no LLM, {PARITY_STEPS / 1e6:g} M steps: return {measured} here ({len(here)} seeds, "
        f"{speed:,.0f} steps/s), {known} published ({len(published)}); standard errors."
    )
