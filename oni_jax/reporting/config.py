"""Settings of a report."""

import dataclasses
import os
import shlex

from oni_jax.config import check_values, setting
from oni_jax.files import check_output


@dataclasses.dataclass(frozen=True)
class ReportConfig:
    """Whose report, and what is in it."""

    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting("default_experiment", "The run; it may be going on.")
    evaluation: str = setting(
        "", "File that launch.evaluate --json wrote; empty: evaluation.json in the experiment's folder, if it is there."
    )
    num_messages: int = setting(15, "Messages listed at each end.", within="[1, inf)")
    num_recordings: int = setting(
        1, "Of the experiment's recordings (recordings/*.mp4, *.gif), how many are put inside; the best episodes first."
    )
    dataset_dir: str = setting("", "A data set of pairs, whose data/message.npy is scored too.")
    html: str = setting("", "File; empty: report.html in the experiment's folder.")

    @property
    def folder(self) -> str:
        """The run's."""
        return os.path.join(self.train_dir, self.experiment)

    def evaluating(self, *words: str) -> str:
        """A command that evaluates the run."""
        run = ["--train_dir", self.train_dir, "--experiment", self.experiment]
        return shlex.join(["python", "-m", "launch.evaluate", *run, *words])


def check_report(config: ReportConfig) -> None:
    """Raises UserError: what can be told from the values, and from where the file shall go."""
    check_values(config)
    if config.html:
        check_output("html", config.html)
