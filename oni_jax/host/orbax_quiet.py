"""Silence of orbax, which logs every step, and reports its closed event loops after a failure."""

import functools
import logging
import sys
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
