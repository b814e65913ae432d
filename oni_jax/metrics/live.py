"""The live view: what a run does, drawn anew in place on a terminal of any width, for less than 1 % of its time."""

import io
import math
import select
import sys
import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from oni_jax.config import RunConfig
from oni_jax.metrics import panels
from oni_jax.metrics.progress import Progress
from oni_jax.metrics.rows import Row

MAX_SHARE = 0.01  # of a run's time; drawings that come too soon for it are left out
MAX_POINTS = 256
MIN_ANSWER_LINES = 4  # where there are answers


class Curve:
    """A number over all of a run in at most MAX_POINTS points of equal length: the longer it gets, the coarser."""

    def __init__(self) -> None:
        self._points: list[float] = []
        self._stride, self._last = 1, list[float]()

    def add(self, value: float) -> None:
        self._last.append(value)
        if len(self._last) == self._stride:
            self._points.append(sum(self._last) / self._stride)
            self._last = []
        if len(self._points) == MAX_POINTS:
            self._points = [(a + b) / 2 for a, b in zip(self._points[::2], self._points[1::2], strict=True)]
            self._stride *= 2

    def points(self) -> Sequence[float]:
        """The oldest first."""
        return self._points


class LiveProgress(Progress):
    """A view that stays in place; what else is printed scrolls above it.

    Drawn when a row comes, on the caller's thread, and not before 99 times the time has passed that the last drawing
    took: a slow terminal gets fewer drawings, and one that was stopped (Ctrl-S) none.
    """

    def __init__(self, run: RunConfig, console: Console):
        super().__init__(run, console.file)
        self._console = console
        # What is printed to a file instead does not belong above the view.
        self._live = Live(
            console=console, auto_refresh=False, vertical_overflow="crop", redirect_stderr=sys.stderr.isatty()
        )
        self._live.start()
        console.show_cursor(True)  # a process that is killed can't do so
        self._returns = Curve()
        self._row: Row = {}  # not drawn yet
        self._due = 0.0

    def update(self, row: Row) -> None:
        self._row = row
        if math.isfinite(newest := row.get("mean_return", math.nan)):
            self._returns.add(newest)
        if time.perf_counter() >= self._due and _takes_text(self._console):
            self._draw()

    def close(self) -> None:
        if self._row and _takes_text(self._console):
            self._draw()
        self._live.stop()

    def _draw(self) -> None:
        start = time.perf_counter()
        width, height = self._console.size
        self._live.update(Group(*self._lines(width, max(1, height - 1))), refresh=True)
        self._row = {}
        end = time.perf_counter()
        self._due = end + (end - start) * (1 / MAX_SHARE - 1)

    def _lines(self, width: int, height: int) -> list[Text]:
        """At most `height`; the newest answers take what the rest leaves them."""
        pens = panels.ASCII if self._console.options.ascii_only else panels.UNICODE
        sections = panels.overview(self._row, self._run, self._returns.points(), width, pens)
        answers = self._row.get("answers", ())
        drawn = panels.fitting(sections, max(1, height - (MIN_ANSWER_LINES if answers else 0)))
        return [*drawn, *panels.newest_answers(answers, width, height - len(drawn), pens)]


def _takes_text(console: Console) -> bool:
    """Whether writing would not wait, as far as can be told."""
    try:
        return bool(select.select([], [console.file], [], 0)[1])
    except io.UnsupportedOperation:  # it is in memory
        return True
