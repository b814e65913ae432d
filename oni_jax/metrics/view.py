"""Views of a running training: a live one on a terminal, plain lines elsewhere."""

import os
import sys
from typing import IO

from rich.console import Console

from oni_jax.config import RunConfig
from oni_jax.metrics.phrases import phrases
from oni_jax.metrics.rows import Row


class PlainView:
    """A plain line per row."""

    def __init__(self, run: RunConfig, stream: IO[str]):
        self._run = run
        self._stream = stream

    def update(self, row: Row) -> None:
        """Shows a row; what it lacks is left out."""
        parts = ((label, ", ".join(text for text, _ in found)) for label, found in phrases(row, self._run).items())
        print(" | ".join(f"{label} {text}" for label, text in parts if text), file=self._stream, flush=True)

    def close(self) -> None:
        pass


class NullView(PlainView):
    """Shows nothing."""

    def __init__(self) -> None:
        pass

    def update(self, row: Row) -> None:
        pass


def build_view(run: RunConfig, stream: IO[str] | None = None) -> PlainView:
    """Builds the live view if `stream` (stdout when None) is a terminal that can draw it, else plain lines."""
    out = sys.stdout if stream is None else stream
    console = Console(file=out, highlight=False)
    if out.isatty() and os.environ.get("TERM") and console.is_terminal and console.is_interactive:
        from oni_jax.metrics.live import LiveView

        return LiveView(run, console)
    return PlainView(run, out)
