"""State of a run of a sweep, from the files in its folder."""

import os

from launch.sweeps.grid import GridRun
from oni_jax.host.files import open_regular
from oni_jax.host.run_files import ended_at, fraction_done

LOG = "output.log"
_LINE_BYTES = 1 << 16  # upper bound of a line


def last_line(path: str) -> str:
    with open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LINE_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def fraction_saved(run: GridRun) -> float:
    """Returns how much of the run was done when it ended last, in [0, 1]. A time limit counts over all starts."""
    return fraction_done(run.config.run, *ended_at(run.folder))


def is_finished(run: GridRun) -> bool:
    """Returns whether the run has reached one of its limits."""
    return fraction_saved(run) >= 1
