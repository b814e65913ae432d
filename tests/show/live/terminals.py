"""A terminal for a program: what its screen shows."""

import codecs
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence

from tests.support.pseudoterminal import DEADLINE_SECS, Pseudoterminal

CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")


class Grid:
    """Rows of a screen, and the lines that have scrolled off it. Understands what this project's programs write."""

    def __init__(self, columns: int, rows: int):
        self.columns, self.num_rows = columns, rows
        self.rows = [""] * rows
        self.history: list[str] = []
        self._row = self._column = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def resize(self, columns: int, rows: int) -> None:
        """Breaks long rows, as most terminals do, and keeps the last ones."""
        broken = [row[i : i + columns] for row in self.rows for i in range(0, max(1, len(row)), columns)]
        self.columns, self.num_rows = columns, rows
        gone = max(0, len(broken) - rows)
        self.history += broken[:gone]
        self.rows = broken[gone:] + [""] * (rows - len(broken))
        self._row, self._column = min(self._row, rows - 1), min(self._column, columns - 1)

    def feed(self, data: bytes) -> None:
        text, self._rest = self._rest + self._decoder.decode(data), ""
        while text:
            if text[0] == "\x1b":
                found = CONTROL.match(text)
                if found is None:
                    assert len(text) < 20, f"unknown control {text[:20]!r}"
                    self._rest = text  # the others are on their way
                    return
                self._control(found[1], found[2])
                text = text[found.end() :]
            else:
                self._put(text[0])
                text = text[1:]

    def _control(self, numbers: str, letter: str) -> None:
        if letter == "H":
            row, column = ([int(x or 1) for x in numbers.split(";")] + [1, 1])[:2]
            self._row, self._column = min(row, self.num_rows) - 1, min(column, self.columns) - 1
        elif letter == "J":
            first = 0 if numbers == "2" else self._row + 1
            if numbers != "2":
                self.rows[self._row] = self.rows[self._row][: self._column]
            self.rows[first:] = [""] * (self.num_rows - first)
        elif letter == "K":
            self.rows[self._row] = self.rows[self._row][: self._column]
        else:
            assert letter in "mhl", f"unknown control {numbers}{letter}"

    def _put(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\n":
            self._down()
        elif not unicodedata.combining(char):
            if self._column == self.columns:
                self._column = 0
                self._down()
            row = self.rows[self._row].ljust(self._column)
            self.rows[self._row] = row[: self._column] + char + row[self._column + 1 :]
            self._column += 1

    def _down(self) -> None:
        if self._row == self.num_rows - 1:
            self.history.append(self.rows.pop(0))
            self.rows.append("")
        else:
            self._row += 1

    def text(self) -> str:
        return "\n".join(row.rstrip() for row in self.rows)


class Terminal(Pseudoterminal):
    """A program's controlling terminal, with what its screen shows."""

    def __init__(self, columns: int, rows: int):
        super().__init__(columns, rows)
        self.grid = Grid(columns, rows)
        self.raw = b""

    def start(self, words: Sequence[str], pass_fds: Sequence[int] = ()) -> None:
        """Starts Python with these words, in a session whose terminal this is."""
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        command = (
            "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
            "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        )
        env |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
        self.run([sys.executable, "-c", command, *words], env, pass_fds)

    def take(self, data: bytes) -> None:
        self.raw += data
        self.grid.feed(data)

    def resize(self, columns: int, rows: int) -> None:
        self.read()
        self.grid.resize(columns, rows)
        self.set_size(columns, rows)

    def shows(self, *texts: str, until: Callable[[str], bool] = lambda text: True) -> str:
        """Waits until the screen shows all of it, and returns the screen's text when nothing more comes."""
        deadline = time.monotonic() + DEADLINE_SECS
        while True:
            while self.read(0.1):
                pass
            text = self.grid.text()
            if all(part in text for part in texts) and until(text):
                return text
            assert time.monotonic() < deadline, f"{texts} not on the screen:\n{text}"
