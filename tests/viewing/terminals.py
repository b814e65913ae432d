"""A person's terminal for a program: a pseudoterminal, and who sits at it."""

import fcntl
import os
import pathlib
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEADLINE_SECS = 120.0


class Person:
    """Types into a program that runs in a terminal, and reads what it shows."""

    def __init__(self, columns: int, rows: int):
        self._ours, self.theirs = os.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(self.theirs)
        self.shown = b""
        self.process: subprocess.Popen[bytes]

    def start(self, program: str, *words: str) -> None:
        command = [sys.executable, "-m", f"launch.{program}", *words]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=self.theirs, stdout=self.theirs, stderr=subprocess.PIPE, start_new_session=True
        )

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def reads(self, text: str) -> bytes:
        """Waits for a text, which may stand anywhere; gives all up to it. What comes later is left for the next."""
        deadline = time.monotonic() + DEADLINE_SECS
        while text.encode() not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} was not shown, but {self.shown[-3000:]!r}"
            self._read(0.1)
        before, found, self.shown = self.shown.partition(text.encode())
        return before + found

    def leaves(self) -> tuple[int, str]:
        """(exit code, stderr) of the program, when it has ended."""
        deadline = time.monotonic() + DEADLINE_SECS
        while self.process.poll() is None:  # it may wait for its output to be read
            assert time.monotonic() < deadline, "the program has not ended"
            self._read(0.1)
        while self._read(0.0):
            pass
        _, err = self.process.communicate()
        return self.process.returncode, err.decode()

    def is_restored(self) -> bool:
        """Whether the terminal is as it was before."""
        return termios.tcgetattr(self.theirs) == self.before

    def _read(self, timeout_secs: float) -> bool:
        """Whether there was something."""
        there = bool(select.select([self._ours], [], [], timeout_secs)[0])
        if there:
            self.shown += os.read(self._ours, 1 << 16)
        return there

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        os.close(self._ours)
        os.close(self.theirs)


@contextmanager
def person(program: str, *words: str, columns: int = 80, rows: int = 26) -> Iterator[Person]:
    """At a terminal of this size, with the program started."""
    own = Person(columns, rows)
    own.start(program, *words)
    try:
        yield own
    finally:
        own.close()
