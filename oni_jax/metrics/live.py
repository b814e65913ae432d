"""The live view of a run, redrawn in place on a terminal of any width, for less than 1 % of the run's time."""

import array
import io
import math
import select
import sys
import time

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.segment import Segment, SegmentLines

from oni_jax.config import RunConfig
from oni_jax.metrics import panels
from oni_jax.metrics.rows import Row
from oni_jax.metrics.view import PlainView

MAX_FRACTION = 0.01  # of a run's time; drawings that would exceed it are skipped
MIN_ANSWER_LINES = 4  # where there are answers
MAX_PROBLEM_LINES = 3
LEAST_FIRST = ("memory", "labels", "limit", "episodes", "queues")


class LiveView(PlainView):
    """A view that stays in place; other output scrolls above it.

    Drawn when a row comes, on the caller's thread, but not before 99 times the duration of the last drawing has passed:
    a slow terminal gets fewer drawings, and a stopped one (Ctrl-S) none.
    """

    def __init__(self, run: RunConfig, console: Console):
        super().__init__(run, console.file)
        self._console = console
        # Output that goes to a file does not belong above the view.
        self._live = Live(
            console=console, auto_refresh=False, vertical_overflow="crop", redirect_stderr=sys.stderr.isatty()
        )
        self._live.start()
        console.show_cursor(True)  # a process that is killed can't do so
        self._returns = array.array("d")  # of every row
        self._row: Row = {}  # not drawn yet
        self._due = 0.0

    def update(self, row: Row) -> None:
        self._row = row
        if math.isfinite(newest := row.get("mean_return", math.nan)):
            self._returns.append(newest)
        if time.perf_counter() >= self._due and _takes_text(self._console):
            self._draw()

    def close(self) -> None:
        if self._row and _takes_text(self._console):
            self._draw()
        self._live.stop()

    def _draw(self) -> None:
        start = time.perf_counter()
        width, height = self._console.size
        self._live.update(SegmentLines(self._lines(width, max(1, height - 1)), new_lines=True), refresh=True)
        self._row = {}
        end = time.perf_counter()
        self._due = end + (end - start) * (1 / MAX_FRACTION - 1)

    def _lines(self, width: int, height: int) -> list[list[Segment]]:
        """Renders at most `height` lines, without the least important sections if need be; answers fill the rest."""
        options = self._console.options.update(width=width, height=None)
        sections = panels.overview(self._row, self._run, np.array(self._returns), width, options.ascii_only)
        drawn = {
            label: self._console.render_lines(panels.labelled(label, content), options, pad=False)
            for label, content in sections.items()
        }
        drawn["problem"] = drawn.get("problem", [])[:MAX_PROBLEM_LINES]
        answers = self._row.get("answers", ())
        room = max(1, height - (MIN_ANSWER_LINES if answers else 0))
        for label in LEAST_FIRST:
            if sum(map(len, drawn.values())) > room:
                drawn.pop(label, None)
        lines = [line for section in drawn.values() for line in section][:room]
        per_answer = len(answers[0].item) if answers else 1
        num_shown = (height - len(lines) - 1) // per_answer
        if answers and num_shown > 0:
            for line in panels.answer_lines(answers[-num_shown:], options.ascii_only):
                lines += self._console.render_lines(line, options, pad=False)
        return lines


def _takes_text(console: Console) -> bool:
    """Returns whether the terminal would take text without blocking, as far as that is known."""
    try:
        return bool(select.select([], [console.file], [], 0)[1])
    except io.UnsupportedOperation:  # it is in memory
        return True
