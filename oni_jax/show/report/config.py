"""Settings of a report."""

import dataclasses
import shlex

from oni_jax.host.files import check_output
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import setting
from oni_jax.show.report.listing import run_folder


@dataclasses.dataclass(frozen=True)
class ReportConfig:
    """The run or sweep, and the contents of its report; that of a sweep has curves and a table of its settings."""

    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting(
        "default_experiment",
        "Run or sweep by name in train_dir, or by folder; it may be going on.",
        positional=True,
    )
    evaluation: str = setting(
        "", "File that launch.evaluate --json wrote; empty: evaluation.json in the experiment's folder, if it is there."
    )
    num_messages: int = setting(15, "Captions listed, of the most and of the least rewarded.", within="[1, inf)")
    num_recordings: int = setting(
        1, "Recordings of the experiment (recordings/*.mp4, *.gif) to embed, the best episodes first."
    )
    dataset_dir: str = setting("", "Data set of pairs, whose data/message.npy is scored too.")
    html: str = setting("", "Output file; empty: report.html in the experiment's folder.")

    @property
    def folder(self) -> str:
        return run_folder(self.train_dir, self.experiment)

    def evaluate_command(self, *words: str) -> str:
        run = ["--train_dir", self.train_dir, "--experiment", self.experiment]
        return shlex.join(["python", "-m", "launch.evaluate", *run, *words])


def check_report(config: ReportConfig) -> None:
    """Checks the values, and that the output file can be written. Raises UserError."""
    check_values(config)
    if config.html:
        check_output("html", config.html)
