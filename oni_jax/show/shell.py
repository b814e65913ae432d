"""Control of a person's terminal: keys arrive unbuffered and without echo, and its settings are restored at the end."""

import os
import select
import sys
import termios
import tty
from collections.abc import Sequence

from oni_jax.envs.screen import ERASE_BELOW, ERASE_LINE, HOME
from oni_jax.settings.fields import UserError
from oni_jax.show.keys import pressed_keys

ENTER_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[2J"  # alternate screen, no cursor
LEAVE_SCREEN = "\x1b[0m\x1b[?25h\x1b[?1049l"
MAX_KEYS_BYTES = 1024
_CONTROL_CHARS = 6  # index into tcgetattr's list


def check_terminal(program: str, columns: int, rows: int) -> None:
    """Raises UserError if standard input or output is no terminal, or a smaller one than this."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(f"launch.{program} needs a terminal: run it in one, without pipes or redirections")
    there = os.get_terminal_size(sys.stdout.fileno())
    if there.columns < columns or there.lines < rows:
        raise UserError(
            f"the terminal has {there.columns} columns and {there.lines} rows, and launch.{program} needs {columns} "
            f"columns and {rows} rows: enlarge the window, or make its font smaller"
        )


class Shell:
    """Context manager of the terminal of standard input and output."""

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
        """Returns the current rows and columns."""
        size = os.get_terminal_size(self._output)
        return size.lines, size.columns

    def draw(self, rows: Sequence[str]) -> None:
        """Shows rows of text from the top; they must fit."""
        size = self.size()
        erase = "\x1b[2J" if size != self._size else ""  # terminals reflow old rows differently
        self._size = size
        # A line is erased before it is written: in a full one the cursor has no column after the last.
        below = f"\x1b[{len(rows) + 1}H{ERASE_BELOW}" if len(rows) < size[0] else ""
        self._send(erase + HOME + "\r\n".join(ERASE_LINE + row for row in rows) + below)

    def keys(self, timeout_secs: float) -> list[int]:
        """Returns the keys pressed, as soon as there is one; none after the time-out."""
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
