"""Progress of what takes long, shown where a person sees it."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from oni_jax.host.printing import unescaped
from oni_jax.host.reporting import report

T = TypeVar("T")
PERIOD_SECS = 0.5  # interval of looks
_ERASE = "\r\x1b[K"  # the line of the cursor


def tracked(items: Iterable[T], what: str, number: int) -> Iterator[T]:
    """Yields items, and shows how many there are so far.

    The live view shows it in place of what it waits for, another terminal on its last line; elsewhere a line says what
    begins.

    Args:
        items: which are made as they are read.
        what: is done, in words.
        number: of items.
    """
    show, started, due = _place(what), time.monotonic(), 0.0
    try:
        for done, item in enumerate(items):
            if (now := time.monotonic()) >= due:
                due = now + PERIOD_SECS
                left = f", {(number - done) * (now - started) / done:.0f} s left" if done else ""
                show(f"{what}: {done:,} of {number:,}{left}")
            yield item
    finally:
        show("")


def _place(what: str) -> Callable[[str], None]:
    """Returns what shows a text; it shows nothing any more with an empty one."""
    stream = unescaped(sys.stdout)
    if show := getattr(stream, "show_progress", None):
        return show
    if not stream.isatty():
        report(what)
        return lambda text: None

    def write(text: str) -> None:
        stream.write(f"{_ERASE}{text}")
        stream.flush()

    return write
