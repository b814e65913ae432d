"""A pseudoterminal with a program in it."""

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

from tests.support.processes import ROOT

DEADLINE_SECS = 120.0


class Pseudoterminal:
    """A terminal that is a program's standard input and output; its stderr is a pipe. `take` gets what it writes."""

    def __init__(self, columns: int, rows: int):
        self.ours, self.theirs = os.openpty()
        self.set_size(columns, rows)
        self.before = termios.tcgetattr(self.theirs)

    def set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()) -> None:
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=self.theirs, stdout=self.theirs, stderr=subprocess.PIPE, start_new_session=True,
            env=env, pass_fds=pass_fds,
        )  # fmt: skip

    def take(self, data: bytes) -> None:
        raise NotImplementedError

    def type(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def read(self, timeout_secs: float = 0.0) -> bool:
        """Takes what the program has written. Returns whether there was something."""
        there = bool(select.select([self.ours], [], [], timeout_secs)[0])
        if there:
            self.take(os.read(self.ours, 1 << 16))
        return there

    def ended(self) -> int:
        """Returns the exit code, when the program has ended."""
        deadline = time.monotonic() + DEADLINE_SECS
        while self.process.poll() is None:  # it may wait for its output to be read
            assert time.monotonic() < deadline, "the program has not ended"
            self.read(0.1)
        while self.read(0.05):
            pass
        return self.process.returncode

    def is_restored(self) -> bool:
        """True if the terminal is as it was before."""
        return termios.tcgetattr(self.theirs) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if self.process.stderr and not self.process.stderr.closed:
            self.process.communicate()
        os.close(self.ours)
        os.close(self.theirs)
