"""Remains of a failed save of orbax: log lines, closed event loops, threads that wait for each other."""

import contextlib
import functools
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any


def quieten() -> None:
    """Silences orbax, which logs each step of a save, and after a failure all that fails with it."""
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if getattr(sys.unraisablehook, "func", None) is not _report_unraisable:
        sys.unraisablehook = functools.partial(_report_unraisable, sys.unraisablehook)


def _report_unraisable(report: Callable[[Any], object], unraisable: Any) -> None:
    """Reports as before, except calls of an event loop of orbax's that a failure has closed."""
    if str(unraisable.exc_value) != "Event loop is closed":
        report(unraisable)


def end_waiting_threads() -> None:
    """Ends the threads of a failed save that wait for its other parts.

    Orbax lets them wait for ten minutes, in which the program could not end. They have no public face.
    """
    with contextlib.suppress(ImportError, AttributeError):  # another version of orbax: they wait
        from orbax.checkpoint._src.futures import future

        for thread in threading.enumerate():
            if isinstance(thread, future._SignalingThread):
                thread.cancel()
                future.set_signals(thread._receive_signals, operation_id=thread._operation_id)
