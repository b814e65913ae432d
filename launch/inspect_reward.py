"""Lists the captions that a run's reward values most and least, and writes all of them to a CSV file.

python -m launch.inspect_reward --experiment score_retrieval
"""

import csv
import dataclasses
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launch.next_commands import command, show
from launch.program import brief_program
from oni_jax.annotation.prompts import escape
from oni_jax.host.files import check_output, write_output
from oni_jax.host.run_files import last_row
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import setting
from oni_jax.show.report.config import ReportConfig
from oni_jax.types import NO_MESSAGE

if TYPE_CHECKING:  # imports JAX, which takes seconds
    from oni_jax.evaluation.inspection import InspectedCaption, Inspection

NARROW = 72  # columns; on a narrower terminal a caption has separate lines


@dataclasses.dataclass(frozen=True)
class InspectionConfig:
    """The run, and the captions to score: all that it saw or had labelled, and those of a data set."""

    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting("default_experiment", "Name of the run, which may be going on.")
    num_messages: int = setting(20, "Captions listed, of the most and of the least rewarded.", within="[1, inf)")
    csv: str = setting("", "File for all captions; empty: <train_dir>/<experiment>/messages.csv.")
    dataset_dir: str = setting("", "Data set of pairs, whose data/message.npy is scored too.")
    llm_reward_type: str = setting("", "Reward to inspect, of several; empty: the first that values captions.")


def _run(config: InspectionConfig) -> int:
    from oni_jax.evaluation.inspection import inspect_reward
    from oni_jax.host.caches import keep_compiled_code
    from oni_jax.offline.dataset import caption_counts

    keep_compiled_code()
    if config.csv:
        check_output("csv", config.csv)
    folder = os.path.join(config.train_dir, config.experiment)
    added = caption_counts(config.dataset_dir) if config.dataset_dir else None
    inspection = inspect_reward(folder, added, config.llm_reward_type)
    path = config.csv or os.path.join(folder, "messages.csv")
    write_csv(path, inspection)
    # Output to a program or a file is not wrapped.
    width = max(20, shutil.get_terminal_size().columns) if sys.stdout.isatty() else sys.maxsize
    text = "\n".join([*report(inspection, config.num_messages, width), f"all of them: {path}"])
    print(text.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding))
    named = {"train_dir": config.train_dir, "experiment": config.experiment, "dataset_dir": config.dataset_dir}
    if last_row(folder):
        show(command("report", ReportConfig(), **named))
    return 0


def write_csv(path: str, inspection: "Inspection") -> None:
    """Writes all captions, the most rewarded first, escaped as in prompts: `annotation.prompts.unescape` reverses it.

    Raises:
        UserError: the file can't be written.
    """
    header = ["message", "count", *inspection.label_columns, "raw_reward", "reward"]
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(header)
    for row in inspection.captions:
        numbers = [row.count, *_labels(row, inspection), row.raw_reward, row.reward]
        writer.writerow([escape(row.caption), *numbers])
    write_output("csv", path, file.getvalue().encode())


def report(inspection: "Inspection", num_messages: int, width: int) -> list[str]:
    """Returns the lines for a terminal of `width` columns."""
    rows = inspection.captions
    rewarded = sum(row.reward > 0 for row in rows)
    lines = [f"{len(rows):,} captions, {rewarded:,} with a reward above 0, at {inspection.env_steps:,} steps"]
    if inspection.other_observations:
        names = ", ".join(inspection.other_observations)
        lines.append(f"the reward also reads {names}, set to zeros here")
    lines.append("reward: without the episodic count and the coefficient; raw: not normalised, without a threshold")
    lines = [part for line in lines for part in _wrapped(line, width)]
    for title, listed in inspection.ends(num_messages):
        lines += ["", title, *_table(listed, inspection, width)]
    return [*lines, ""]


def _table(rows: Sequence["InspectedCaption"], inspection: "Inspection", width: int) -> list[str]:
    cells = [["reward", "raw", "count", *inspection.label_columns]]
    for row in rows:
        known = [row.count, *_labels(row, inspection)]
        cells.append([f"{row.reward:.4g}", f"{row.raw_reward:.4g}", *("" if x is None else str(x) for x in known)])
    sizes = [max(map(len, column)) for column in zip(*cells)]
    lines = []
    for line, caption in zip(cells, ["caption", *(escape(row.caption) or NO_MESSAGE for row in rows)]):
        numbers = " ".join(cell.rjust(size) for cell, size in zip(line, sizes))
        if width >= NARROW:
            lines += _wrapped(caption, width, f"{numbers}  ", " " * (len(numbers) + 2))
        else:
            lines += [numbers, *_wrapped(caption, width, "  ", "  ")]
    return lines


def _labels(row: "InspectedCaption", inspection: "Inspection") -> Sequence[int | None]:
    return row.labels or [None] * len(inspection.label_columns)


def _wrapped(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=others, drop_whitespace=False, break_on_hyphens=False
    )


main = brief_program("inspect_reward", InspectionConfig(), check_values, _run)

if __name__ == "__main__":
    sys.exit(main())
