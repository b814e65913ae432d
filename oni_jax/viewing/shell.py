"""A person's terminal in the hands of this process: keys come at once and unseen, and it is left as it was found."""

import os
import select
import sys
import termios
import tty
from collections.abc import Sequence

from oni_jax.config import UserError
from oni_jax.viewing.keys import pressed_keys

ENTER_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[2J"  # a screen of its own, no cursor
LEAVE_SCREEN = "\x1b[0m\x1b[?25h\x1b[?1049l"
HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[0m\x1b[K", "\x1b[0m\x1b[J"
MAX_KEYS_BYTES = 1024
_LOCAL_FLAGS, _CONTROL_CHARS = 3, 6  # of what tcgetattr gives


def check_terminal(program: str, columns: int, rows: int) -> None:
    """Raises UserError: standard input and output are no terminal, or a smaller one than this."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(f"launch.{program} needs a terminal: run it in one, without pipes or redirections")
    there = os.get_terminal_size(sys.stdout.fileno())
    if there.columns < columns or there.lines < rows:
        raise UserError(
            f"the terminal has {there.columns} columns and {there.lines} rows, and launch.{program} needs {columns} "
            f"columns and {rows} rows: enlarge the window, or make its font smaller"
        )


class Shell:
    """The terminal of standard input and output, for the time of a `with`."""

    def __init__(self) -> None:
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        self._size = (0, 0)

    def __enter__(self) -> "Shell":
        self._before = termios.tcgetattr(self._input)
        try:
            tty.setcbreak(self._input)  # Ctrl-C stays a signal
            changed = termios.tcgetattr(self._input)
            for key in (termios.VSUSP, termios.VQUIT):  # Ctrl-Z and Ctrl-\ would leave the shell with this screen
                changed[_CONTROL_CHARS][key] = b"\0"
            termios.tcsetattr(self._input, termios.TCSADRAIN, changed)
            self._send(ENTER_SCREEN)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._send(LEAVE_SCREEN)
        finally:
            termios.tcsetattr(self._input, termios.TCSAFLUSH, self._before)

    def size(self) -> tuple[int, int]:
        """Rows and columns, now."""
        there = os.get_terminal_size(self._output)
        return there.lines, there.columns

    def draw(self, rows: Sequence[str]) -> None:
        """Shows rows of text from the top, which fit."""
        size = self.size()
        erase = "\x1b[2J" if size != self._size else ""  # what a terminal makes of the old rows is its own matter
        self._size = size
        # A line is erased before it is written: behind its last column there is nowhere to be.
        below = f"\x1b[{len(rows) + 1}H{ERASE_BELOW}" if len(rows) < size[0] else ""
        self._send(erase + HOME + "\r\n".join(ERASE_LINE + row for row in rows) + below)

    def keys(self, timeout_secs: float) -> list[int]:
        """The keys pressed meanwhile, as soon as there is one; none when the time is over."""
        if not select.select([self._input], [], [], timeout_secs)[0]:
            return []
        data = os.read(self._input, MAX_KEYS_BYTES)
        if not data:
            raise UserError("the terminal was closed")
        return pressed_keys(data)

    def _send(self, text: str) -> None:
        data = text.encode("ascii", "replace")
        while data:
            data = data[os.write(self._output, data) :]
