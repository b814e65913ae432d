"""Reports of slow disks, such as one of a network that comes and goes."""

import contextlib
import threading
import time
from collections.abc import Iterator

from oni_jax.host.reporting import report

SLOW_SECS = 10.0


@contextlib.contextmanager
def reported_after(secs: float, line: str) -> Iterator[None]:
    """Reports a line while the body runs, once it takes longer than `secs`."""
    timer = threading.Timer(secs, report, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def reported_if_slow(what: str, slow_secs: float = SLOW_SECS) -> Iterator[None]:
    """Reports a body that takes longer than `slow_secs`, and at its end how long it took."""
    started = time.monotonic()
    try:
        with reported_after(
            slow_secs, f"warning: {what} takes longer than {slow_secs:g} s: training waits for the disk"
        ):
            yield
    finally:
        if (took := time.monotonic() - started) > slow_secs:
            report(f"{what} took {took:.0f} s; training goes on")
