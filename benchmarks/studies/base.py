"""A study: a question, its main contrasts, and the sweep that answers it."""

import dataclasses
import pathlib
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from launch.sweeps.grid import GridRun, plan, planned

FOLDER = pathlib.Path(__file__).parent
UNDER = "under {}"  # name of the policy of an agent of several goals, under one
AT_THE_END, OVER_THE_RUN = "at the end", "over the run"  # summaries of a curve


class Contrast(NamedTuple):
    """A difference that a study's answer rests on: a case's metric minus that of the reference."""

    case: str
    reference: str
    metric: str = ""  # empty: the study's
    summary: str = AT_THE_END
    task: str = ""  # empty: the first
    held_out: bool = False  # both are policies in the file of held-out episodes, paired by seed
    beforehand: bool = True  # named before the runs


class Pair(NamedTuple):
    """A behaviour that an agent of several goals should show more of under the first goal than under the second."""

    behaviour: str
    first: str
    second: str

    def contrast(self) -> Contrast:
        return Contrast(UNDER.format(self.first), UNDER.format(self.second), self.behaviour, held_out=True)


@dataclasses.dataclass(frozen=True)
class Study:
    """A question, and the grid of runs that answers it."""

    name: str
    title: str  # subject of the question
    question: str
    contrasts: tuple[Contrast, ...]  # the main ones, for which Holm's correction is made
    shown: Mapping[str, str]  # three to six cases in words, which the page's table and figure have
    cases: tuple[str, ...]  # arguments of launch.sweep: `LABEL: FLAGS`
    axes: tuple[str, ...]  # arguments of launch.sweep: `name=values`
    flags: str  # flags of launch.train, for all runs
    answer: str = ""  # one sentence; empty: not run yet
    notes: tuple[str, ...] = ()  # sentences on how to read the results
    metric: str = "mean_return"  # metric of the figure and the tables
    left_out: int = 0  # steps or seconds, which pages leave out: until then only short episodes have ended
    also: tuple[str, ...] = ()  # more metrics, whose values at the end are in the table of all rows
    played: Mapping[str, str] = dataclasses.field(default_factory=dict)  # means over held-out episodes, in words
    jobs: int = 2  # runs at a time
    prepare: tuple[str, ...] = ()  # programs and their flags that make what the runs read
    prepared: str = ""  # the folder that they write to
    folder: str = ""  # folder of the results' file; empty: this package's

    @property
    def over(self) -> str:
        """Unit of a run's limit, and of its curves' points: steps of the environment, or seconds."""
        return "seconds" if "--train_for_seconds" in self.flags else "steps"

    @property
    def path(self) -> pathlib.Path:
        return pathlib.Path(self.folder or FOLDER, f"{self.name}.json")

    @property
    def episodes_path(self) -> pathlib.Path:
        """File of the means over held-out episodes, as `benchmarks.steering` writes them."""
        return self.path.with_name(f"{self.name}_episodes.json")

    def planned(self) -> dict[str, dict[str, str]]:
        """Returns the runs' values of the axes, by name, checking nothing."""
        return planned(self.axes, self.cases)

    def sweep_words(self) -> list[str]:
        """Returns the arguments of launch.sweep; other ones may be put before them."""
        cases = [word for case in self.cases for word in ("--case", case)]
        return [f"--experiment={self.name}", *cases, "--grid", *self.axes, "--", *shlex.split(self.flags)]

    def runs(self, train_dir: str) -> list[GridRun]:
        """Returns the runs, in folders below `train_dir`. Raises UserError: launch.train would refuse one."""
        folder = str(pathlib.Path(train_dir).absolute() / self.name)
        return plan(self.axes, self.cases, shlex.split(self.flags), folder)
