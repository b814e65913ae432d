"""Lists the runs of a folder: state, steps, return, reward and labels, a line each.

python -m launch.ls train_dir
"""

import dataclasses
import shutil
import sys
import time

from launch.program import brief_program
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import setting
from oni_jax.show.report.listing import list_runs, table

WIDE = 1000  # columns where the output is not a terminal


@dataclasses.dataclass(frozen=True)
class ListConfig:
    """The folder. Ages are those of the newest file of a run; a mean return has its number of episodes behind it."""

    train_dir: str = setting("./train_dir", "Folder of experiments, of a sweep, or of one run.", positional=True)


def _run(config: ListConfig) -> int:
    runs, skipped = list_runs(config.train_dir)
    print("\n".join(table(runs, shutil.get_terminal_size((WIDE, 0)).columns, time.time()) if runs else ["no runs"]))
    for line in skipped:
        print(f"skipped {line}", file=sys.stderr)
    return 0


main = brief_program("ls", ListConfig(), check_values, _run)

if __name__ == "__main__":
    sys.exit(main())
