"""A study: a question, and the sweep that answers it."""

import dataclasses
import fnmatch
import pathlib
import shlex
from collections.abc import Sequence

from launch.sweeps.grid import GridRun, plan, planned

FOLDER = pathlib.Path(__file__).parent


def matches(label: str, patterns: Sequence[str]) -> bool:
    """Returns whether a case's label matches one of the patterns, as of a shell."""
    return any(fnmatch.fnmatch(label, pattern) for pattern in patterns)


@dataclasses.dataclass(frozen=True)
class Study:
    """A question, and the grid of runs that answers it."""

    name: str
    question: str
    cases: tuple[str, ...]  # of launch.sweep: `LABEL: FLAGS`
    axes: tuple[str, ...]  # of launch.sweep: `name=values`
    flags: str  # of launch.train, for all runs
    metric: str = "mean_return"  # drawn, and in the table: mean_return or success
    left_out: int = 0  # steps or seconds, which pages leave out: until then only short episodes have ended
    levels: tuple[float, ...] = (0.5, 0.8)  # of success, whose steps are in the table
    # Cases, beside the first, to which the others are compared: `LABEL`, or `LABEL: PATTERN PATTERN`, to which those.
    compared: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ("*",)  # patterns of the cases that a figure has, for each figure of a task
    also: tuple[str, ...] = ()  # more metrics, whose values at the end are in the table
    jobs: int = 2  # runs at a time
    note: str = ""  # on how to read the results
    prepare: tuple[str, ...] = ()  # programs and their flags that make what the runs read
    prepared: str = ""  # the folder that they write to
    folder: str = ""  # of the results' file; empty: this package's

    @property
    def over(self) -> str:
        """Unit of a run's limit, and of its curves' points: steps of the environment, or seconds."""
        return "seconds" if "--train_for_seconds" in self.flags else "steps"

    @property
    def path(self) -> pathlib.Path:
        """File of the results."""
        return pathlib.Path(self.folder or FOLDER, f"{self.name}.json")

    def planned(self) -> dict[str, dict[str, str]]:
        """Returns the runs' values of the axes, by name, checking nothing."""
        return planned(self.axes, self.cases)

    def references(self) -> dict[str, list[str]]:
        """Returns the cases to which others are compared, and the patterns of these others."""
        parts = [text.partition(":") for text in self.compared]
        first = self.cases[0].partition(":")[0] if self.cases else "all"
        return {first: ["*"], **{label: patterns.split() or ["*"] for label, _, patterns in parts}}

    def sweep_words(self) -> list[str]:
        """Returns the arguments of launch.sweep; more of its own may be put before them."""
        cases = [word for case in self.cases for word in ("--case", case)]
        return [f"--experiment={self.name}", *cases, "--grid", *self.axes, "--", *shlex.split(self.flags)]

    def runs(self, train_dir: str) -> list[GridRun]:
        """Returns the runs, in folders below `train_dir`. Raises UserError: launch.train would refuse one."""
        folder = str(pathlib.Path(train_dir).absolute() / self.name)
        return plan(self.axes, self.cases, shlex.split(self.flags), folder)

    def command(self) -> str:
        """Returns the commands, on several lines."""
        options = [["--case", case] for case in self.cases] + [["--grid", *self.axes]]
        first = f"python -m launch.sweep --experiment={self.name} --jobs={self.jobs}"
        parts = [first, *map(shlex.join, options), f"-- {self.flags}"]
        return "\n".join([*(f"python -m {words}" for words in self.prepare), " \\\n    ".join(parts)])
