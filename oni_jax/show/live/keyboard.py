"""Keys pressed while a program runs, on the terminal that is its standard input."""

import contextlib
import os
import signal
import sys
import termios
from typing import Any

_LOCAL, _CONTROL_CHARS = 3, 6  # indices into tcgetattr's list
_LINES = termios.ICANON | termios.ECHO


class Keyboard:
    """Keys without Enter and without echo; Ctrl-C and Ctrl-Z stay signals. None where standard input is no terminal.

    For one thread, whose SIGTTIN and SIGTTOU it blocks: they would stop a program that a shell has put into the
    background.
    """

    def __init__(self) -> None:
        self._terminal = -1
        with contextlib.suppress(ValueError, OSError, AttributeError):  # closed, or none
            self._terminal = sys.stdin.fileno() if sys.stdin.isatty() else -1
        self._before: list | None = None
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTIN, signal.SIGTTOU))

    @property
    def files(self) -> list[int]:
        """The file to wait for, if keys can come now."""
        return [self._terminal] if self._before and self._is_foreground() else []

    def listen(self) -> bool:
        """Takes keys one by one from now on. Returns False if that was so: a shell between two calls undoes it."""
        if not self._is_foreground():
            return False
        with contextlib.suppress(termios.error):
            now = termios.tcgetattr(self._terminal)
            if now[_LOCAL] & _LINES:
                self._before = now
                changed: list[Any] = [*now[:_CONTROL_CHARS], list(now[_CONTROL_CHARS])]
                changed[_LOCAL] &= ~_LINES
                changed[_CONTROL_CHARS][termios.VMIN], changed[_CONTROL_CHARS][termios.VTIME] = 1, 0
                termios.tcsetattr(self._terminal, termios.TCSANOW, changed)
                return True
        return False

    def read(self) -> str:
        """Returns the keys pressed; call it when there are some."""
        keys = b""
        with contextlib.suppress(OSError):
            keys = os.read(self._terminal, 1024)
        if not keys:  # the terminal is gone
            self._terminal = -1
        return keys.decode("latin-1")

    def close(self) -> None:
        """Restores the terminal's settings."""
        if self._before and self._is_foreground():
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._terminal, termios.TCSANOW, self._before)
        self._before = None

    def _is_foreground(self) -> bool:
        with contextlib.suppress(OSError):
            return self._terminal >= 0 and os.tcgetpgrp(self._terminal) == os.getpgrp()
        return False
