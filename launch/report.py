"""Writes a run's settings, curves, evaluation, messages and a recording into one HTML file that needs no network."""

import dataclasses
import os
import sys
from collections.abc import Sequence

from launch.program import run_program
from oni_jax.config import UserError, check_values, setting
from oni_jax.runtime import StopRequest


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


@dataclasses.dataclass(frozen=True)
class Report:
    """The program launch.report."""

    report: ReportConfig = ReportConfig()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code."""
    return run_program("report", argv, Report(), _check, _run)


def _check(program: Report) -> None:
    check_values(program)
    path = program.report.html
    if path and not os.path.isdir(os.path.dirname(path) or "."):
        raise UserError(f"--html {path}: there is no folder {os.path.dirname(path)}; make it, or name another file")


def _run(program: Report, stop: StopRequest) -> int:
    del stop
    from oni_jax.files import write_whole
    from oni_jax.reporting.report import Source, make_report  # brings JAX and matplotlib, which take seconds
    from oni_jax.system import keep_compiled_code

    keep_compiled_code()
    config = program.report
    source = Source(
        config.train_dir,
        config.experiment,
        config.evaluation,
        config.num_messages,
        config.num_recordings,
        config.dataset_dir,
    )
    data = make_report(source)
    path = config.html or os.path.join(source.folder, "report.html")
    try:
        write_whole(path, data)
    except OSError as error:
        raise UserError(f"--html {path}: can't be written ({error.strerror}); name another file") from None
    print(f"{path}: {len(data) / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
