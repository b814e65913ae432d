"""Waits for a disk, such as one of a network that comes and goes: reported while they last, and at their end."""

import contextlib
import threading
import time
from collections.abc import Iterator

from oni_jax.host.reporting import report

SLOW_SECS = 10.0


@contextlib.contextmanager
def reported_if_slow(what: str, slow_secs: float = SLOW_SECS) -> Iterator[None]:
    """Reports who waits where what is done meanwhile takes longer than `slow_secs`, and then how long it took."""
    line = f"warning: {what} takes longer than {slow_secs:g} s: training waits for the disk"
    timer, started = threading.Timer(slow_secs, report, [line]), time.monotonic()
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if (took := time.monotonic() - started) > slow_secs:
            report(f"{what} took {took:.0f} s; training goes on")
