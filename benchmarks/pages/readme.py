"""The README's table of what is learnt, from the results in the repository."""

from collections.abc import Mapping, Sequence

from benchmarks.pages import other_results, page
from benchmarks.studies.base import FOLDER, Study
from benchmarks.studies.results import by_cell, counted
from launch.sweeps.results import table
from oni_jax.settings.fields import UserError

PATH = FOLDER.parents[1] / "README.md"
BEGINS, ENDS = "<!-- made by `python -m benchmarks.studies` -->\n", "<!-- end -->\n"
HEADER = ["mean over five seeds [95 % interval]", "without", "with a language model's recorded answers"]
LINES = (  # study, what is measured, its cases without and with answers
    ("ellm", "achievements in an episode of Crafter, without its reward, 5 M steps", ("no_reward", "model")),
    ("ellm", "the same", ("all_actions", "model")),
    (
        "ellm_task",
        "fraction of episodes with a wooden pickaxe (also a goal of the pretraining), 1 M steps",
        ("scratch", "tuned_from_answers"),
    ),
)


def with_table(text: str, studies: Mapping[str, Study]) -> str:
    """Returns the README's text with its table, and the sentence after it, made again. Raises UserError."""
    before, begins, rest = text.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    assert begins and ends, f"{PATH} needs {BEGINS!r} and {ENDS!r}"
    lines = table(HEADER, [_row(studies[name], what, cases) for name, what, cases in LINES])
    return before + begins + "\n".join([*lines, "", other_results.parity_words(), ""]) + ends + after


def _row(study: Study, what: str, cases: Sequence[str]) -> list[str]:
    cells = by_cell(counted(study)["runs"])
    if lacking := {*cases} - cells.keys():
        raise UserError(f"{study.path}: the README needs its {', '.join(sorted(lacking))}; restore it")
    return [
        f"[{what}](docs/results/{study.name}.md)",
        *(f"{study.shown[case]}: {page.at_the_end(cells[case], study.metric)}" for case in cases),
    ]
