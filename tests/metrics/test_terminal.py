"""The live view of a process on a real terminal: a pseudoterminal that is resized, stopped, taken away."""

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Iterator

import pytest

DEADLINE_SECS = 60.0
PROGRAM = textwrap.dedent("""
    import os, sys
    from contextlib import closing
    from oni_jax.config import RunConfig
    from oni_jax.files import keep_printing
    from oni_jax.metrics.view import build_view
    from tests.metrics.rows import ROW

    keep_printing()
    streams = sys.stdout, sys.stderr
    try:
        with closing(build_view(RunConfig(experiment="my_run"))) as view:
            for number, word in enumerate(sys.stdin):
                if word == "row\\n":
                    view._due = 0.0
                    view.update({**ROW, "updates": 1000 + number})
                elif word == "print\\n":
                    print("above the view")
                elif word == "warn\\n":
                    print("a warning", file=sys.stderr)
                else:
                    raise ValueError("it failed")
                os.write(2, b".")
    except ValueError as error:
        print(error, (sys.stdout, sys.stderr) == streams)
""")


class Terminal:
    """A program on a terminal of 80 columns, whose stderr is a pipe. It acts by word."""

    def __init__(self):
        self.ours, self.theirs = os.openpty()
        self.resize(80)
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=self.theirs,
            stderr=subprocess.PIPE,
            env={**env, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
        )

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def tell(self, word: str) -> None:
        """Returns when the program has done it."""
        assert self.process.stdin and self.process.stderr
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()
        said = b""
        while not said.endswith(b"."):
            assert select.select([self.process.stderr], [], [], DEADLINE_SECS)[0], f"{word} is not done"
            more = os.read(self.process.stderr.fileno(), 1000)
            assert more, said
            said += more
        self.said = said.decode()

    def shows(self, text: str) -> str:
        """Waits for a text; gives all that was shown since the last call."""
        shown, deadline = b"", time.monotonic() + DEADLINE_SECS
        while text.encode() not in shown:
            assert time.monotonic() < deadline, f"{text!r} is not in {shown!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                shown += os.read(self.ours, 1 << 16)
        while select.select([self.ours], [], [], 0.02)[0]:
            shown += os.read(self.ours, 1 << 16)
        return shown.decode()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    own = Terminal()
    yield own
    own.close()


def widest(shown: str) -> int:
    """Of the lines that were drawn, without what steers the terminal."""
    return max(map(len, re.sub(r"\x1b\[[\d;?]*[A-Za-z]|\r", "", shown).splitlines()))


def test_it_is_drawn_in_place_with_what_is_printed_above_it(terminal):
    terminal.tell("row")
    first = terminal.shows("update 1,000")
    assert first.index("\x1b[?25l") < first.index("\x1b[?25h") and first.count("\x1b[?25l") == 1  # it has its cursor
    assert 60 < widest(first) <= 80
    terminal.tell("print")
    between = terminal.shows("update 1,000")
    assert "\x1b[1A" in between and between.index("above the view") < between.index("my_run")
    terminal.resize(40)
    terminal.tell("row")
    assert 30 < widest(terminal.shows("update 1,002")) <= 40
    terminal.tell("warn")
    assert terminal.said == "a warning\n."  # went to its own file


def test_a_failure_leaves_the_terminal_as_it_was(terminal):
    terminal.tell("row")
    terminal.process.stdin.write(b"fail\n")
    terminal.process.stdin.flush()
    shown = terminal.shows("it failed True")
    assert "\x1b[?25l" not in shown[shown.rindex("\x1b[?25h") :]
    terminal.process.communicate()
    assert terminal.process.returncode == 0


def test_a_stopped_terminal_stops_nothing(terminal):
    terminal.tell("row")
    terminal.shows("update 1,000")
    termios.tcflow(terminal.theirs, termios.TCOOFF)
    terminal.tell("row")
    termios.tcflow(terminal.theirs, termios.TCOON)
    terminal.tell("row")
    shown = terminal.shows("update 1,002")
    assert "update 1,001" not in shown


def test_a_terminal_that_is_gone_ends_nothing(terminal):
    terminal.tell("row")
    os.close(terminal.ours)
    terminal.ours = os.open(os.devnull, os.O_RDONLY)
    terminal.tell("row")
    terminal.tell("print")
    terminal.process.communicate()
    assert terminal.process.returncode == 0
