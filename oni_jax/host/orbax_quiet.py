"""Silence of orbax, which logs every step, and reports its closed event loops after a failure."""

import logging
import sys
from typing import Any


def quieten() -> None:
    """Silences orbax, which logs each step of a save, and after a failure all that fails with it."""
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _report_unraisable


def _report_unraisable(unraisable: Any) -> None:
    """Reports as Python does, except calls of an event loop of orbax's that a failure has closed."""
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)
