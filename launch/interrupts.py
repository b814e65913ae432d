"""Ctrl-C before a program handles it, and after: a line and the exit code 130, never a traceback."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # as typing's, which takes a while to import: Ctrl-C would meanwhile print a traceback
if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_SIGINT = (signal.SIGINT,)
_AGAIN_SECS = 0.1  # interval of looks whether an interrupt was lost


def leave_quietly() -> None:
    """Has Ctrl-C end this process at once, unless it is ignored; lets it in where `held_back` has kept it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
        sys.unraisablehook = _unraisable
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGINT)


@contextmanager
def held_back() -> Iterator[None]:
    """Keeps Ctrl-C waiting meanwhile, and in a program that replaces this one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGINT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGINT)


@contextmanager
def interruptible() -> Iterator[None]:
    """Has the first Ctrl-C raise KeyboardInterrupt, so that what was begun is cleaned up, and a second one end all.

    Python loses what is raised inside a callback, as of a garbage collection, and some code suppresses or replaces it.
    KeyboardInterrupt is raised again until it is handled, and in place of another error.
    """
    if signal.getsignal(signal.SIGINT) is not _leave:  # another program's
        yield
        return
    signal.signal(signal.SIGALRM, _interrupt_again)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    except Exception:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            raise
        raise KeyboardInterrupt from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, _leave)


def _interrupt(number: int, frame: object) -> None:
    signal.signal(number, _leave)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECS, _AGAIN_SECS)
    raise KeyboardInterrupt


def _interrupt_again(number: int, frame: object) -> None:
    """Raises KeyboardInterrupt where none is handled: cleaning up is not interrupted again."""
    del number, frame
    error = sys.exception()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    if error is None:
        raise KeyboardInterrupt


def _leave(number: int, frame: object) -> None:
    with suppress(Exception):  # it may be in the middle of writing
        sys.stdout.flush()
    with suppress(OSError):  # past sys.stderr, whose lock may be held
        os.write(2, b"interrupted\n")
    os._exit(130)


def _unraisable(about: "UnraisableHookArgs") -> None:
    """Says nothing of a KeyboardInterrupt inside a callback: it is raised again where it can be handled."""
    if not issubclass(about.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(about)
