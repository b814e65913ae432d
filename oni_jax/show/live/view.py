"""Views of a running training: a live one on a terminal, plain lines elsewhere."""

import math
import os
import sys
import time
from collections.abc import Callable
from typing import IO

from rich.console import Console

from oni_jax.envs.display import Terminal
from oni_jax.host.printing import unescaped
from oni_jax.metrics.rows import Row
from oni_jax.settings.run import RunConfig
from oni_jax.show.live.pace import Pace
from oni_jax.show.live.phrases import plain_line

PERIOD_SECS = 30.0  # interval of plain lines


class PlainView:
    """A plain line every PERIOD_SECS, and one of the first and the last row."""

    def __init__(self, run: RunConfig, stream: IO[str]):
        self._run, self._stream = run, stream
        self._pace = Pace(run)
        self._row: Row = {}  # not shown yet
        self._due = -math.inf

    def update(self, row: Row) -> None:
        """Shows a row; what it lacks is left out."""
        self._pace.add(row)
        self._row = {**row, "secs_left": self._pace.secs_left()}
        if time.monotonic() >= self._due:
            self._print()

    def close(self) -> None:
        if self._row:
            self._print()

    def _print(self) -> None:
        print(plain_line(self._row, self._run), file=self._stream, flush=True)
        self._row, self._due = {}, time.monotonic() + PERIOD_SECS


class NullView(PlainView):
    """Shows nothing."""

    def __init__(self) -> None:
        pass

    def update(self, row: Row) -> None:
        pass

    def close(self) -> None:
        pass


def build_view(
    run: RunConfig,
    folder: str = "",
    labels_by: str = "",
    stream: IO[str] | None = None,
    terminal: Callable[[], Terminal | None] = lambda: None,
) -> PlainView:
    """Builds the live view if `stream` is a terminal that can draw it, else plain lines.

    Args:
        run: settings.
        folder: of the run, whose checkpoints the live view looks at.
        labels_by: who makes the labels, in words.
        stream: None: stdout.
        terminal: see `World.terminal`.
    """
    out = sys.stdout if stream is None else stream
    console = Console(file=unescaped(out), highlight=False)
    if out.isatty() and os.environ.get("TERM") and console.is_terminal and console.is_interactive:
        from oni_jax.show.live.live import LiveView

        return LiveView(run, console, folder, labels_by, terminal)
    return PlainView(run, out)
