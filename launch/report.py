"""Writes a run's settings, curves, evaluation, captions and recordings into one self-contained HTML file.

python -m launch.report --experiment score_retrieval
"""

import os
import sys
from collections.abc import Sequence

from launch.program import run_program
from oni_jax.files import write_output
from oni_jax.reporting.config import ReportConfig, check_report
from oni_jax.runtime import StopRequest


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code."""
    return run_program("report", argv, ReportConfig(), check_report, _run)


def _run(config: ReportConfig, stop: StopRequest) -> int:
    del stop
    from oni_jax.reporting.report import make_report  # imports JAX and matplotlib, which take seconds
    from oni_jax.system import keep_compiled_code

    keep_compiled_code()
    data = make_report(config)
    path = config.html or os.path.join(config.folder, "report.html")
    write_output("html", path, data)
    print(f"{path}: {len(data) / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
