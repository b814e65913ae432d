"""A person's terminal for a program, and who sits at it."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.pseudoterminal import DEADLINE_SECS, Pseudoterminal


class Person(Pseudoterminal):
    """Types into a program that runs in a terminal, and reads what it shows."""

    def __init__(self, columns: int, rows: int):
        super().__init__(columns, rows)
        self.shown = b""

    def start(self, program: str, *words: str) -> None:
        self.run([sys.executable, "-m", f"launch.{program}", *words])

    def take(self, data: bytes) -> None:
        self.shown += data

    def reads(self, text: str) -> bytes:
        """Waits for a text, which may stand anywhere; gives all up to it. What comes later is left for the next."""
        deadline = time.monotonic() + DEADLINE_SECS
        while text.encode() not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} was not shown, but {self.shown[-3000:]!r}"
            self.read(0.1)
        before, found, self.shown = self.shown.partition(text.encode())
        return before + found

    def leaves(self) -> tuple[int, str]:
        """(exit code, stderr) of the program, when it has ended."""
        code, (_, err) = self.ended(), self.process.communicate()
        return code, err.decode()


@contextmanager
def person(program: str, *words: str, columns: int = 80, rows: int = 26) -> Iterator[Person]:
    """At a terminal of this size, with the program started."""
    player = Person(columns, rows)
    player.start(program, *words)
    try:
        yield player
    finally:
        player.close()
