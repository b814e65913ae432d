"""A terminal's rows, drawn in place, and what is printed meanwhile, which scrolls off above them."""

import io
import os
import select
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from rich.cells import cell_len
from rich.console import Console

from oni_jax.envs.screen import ERASE_BELOW, ERASE_LINE, HOME
from oni_jax.settings.fields import printable


class Screen:
    """All rows of a terminal but the last one, where the cursor is.

    Every drawing starts at the first row and writes every row: what others have written there is gone with the next
    one, and a resize leaves nothing behind. It is no alternate screen: the last drawing stays when the program ends.
    """

    def __init__(self, console: Console):
        self._console, self._stream = console, console.file
        self._size: tuple[int, int] | None = None  # size of the last drawing
        self._num_lines = 0  # its number of lines

    def size(self) -> tuple[int, int]:
        """Returns the terminal's columns and rows."""
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):  # a stream in memory
            return self._console.size
        return size if all(size) else self._console.size  # some have no size

    def is_resized(self) -> bool:
        return self._size is not None and self.size() != self._size

    def forget(self) -> None:
        """Has the next drawing scroll off all that is there, as the first one does."""
        self._size = None

    def takes_text(self) -> bool:
        """Returns whether the terminal would take text without blocking, as far as that is known."""
        try:
            return bool(select.select([], [self._stream], [], 0)[1])
        except (io.UnsupportedOperation, ValueError):
            return True

    def draw_line(self, text: str, printed: Sequence[str] = ()) -> None:
        """Draws a line where the cursor is, below those printed since; the first drawing of all rows removes it."""
        self._stream.write("".join(f"\r{ERASE_LINE}{line}\r\n" for line in printed) + f"\r{ERASE_LINE}{text}")
        self._stream.flush()

    def draw(self, lines: Sequence[str], printed: Sequence[str] = ()) -> None:
        """Draws lines that fit into `size`, after those printed since the last drawing, of any length."""
        columns, rows = size = self.size()
        bottom = f"\x1b[{rows};1H"
        text = "" if self._size else f"\r{ERASE_LINE}{bottom}" + "\n" * rows
        if printed:
            # The terminal keeps what scrolls off at the top.
            num_rows = sum(max(1, -(-cell_len(line) // max(1, columns))) for line in printed)
            text += HOME + ERASE_BELOW + "".join(f"{line}\r\n" for line in printed)
            text += bottom + "\n" * min(num_rows, rows - 1)
        # A line is erased before it is written: in a full one the cursor has no column after the last.
        text += HOME + "".join(f"{ERASE_LINE}{line}\r\n" for line in lines[: max(1, rows - 1)]) + ERASE_BELOW
        self._stream.write(text)
        self._stream.flush()
        self._size, self._num_lines = size, min(len(lines), max(1, rows - 1))

    def draw_over(self, begins: Mapping[int, str]) -> None:
        """Draws over the beginnings of lines of the last drawing, by their indices, while it is there."""
        if self._size:
            text = "".join(f"\x1b[{index + 1};1H{begin}" for index, begin in begins.items())
            self._stream.write(f"{text}\x1b[{self._num_lines + 1};1H")
            self._stream.flush()


class Printed(io.TextIOBase):
    """A stream for sys.stdout that hands over whole lines instead of writing them, and what is done meanwhile."""

    def __init__(
        self, stream: IO[str], take: Callable[[str], None], show_progress: Callable[[str], None] = lambda text: None
    ):
        self._stream, self._take, self._begun = stream, take, ""
        self.show_progress = show_progress  # see `host.progress`

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._take(printable(line, keep="\t"))
        return len(text)

    def end(self) -> None:
        """Hands over the line begun, if any."""
        if self._begun:
            self.write("\n")

    @property
    def encoding(self) -> str:  # type: ignore
        return getattr(self._stream, "encoding", "utf-8")

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()
