"""Lines for people: what the library says goes to standard output, or to a sink in its place."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Sink = Callable[[str, bool], None]  # takes a text, and whether it belongs on standard error


def _print(text: str, to_stderr: bool) -> None:
    print(text, file=sys.stderr if to_stderr else sys.stdout, flush=True)


_sinks: list[Sink] = [_print]  # the last one takes all


def report(*texts: str, to_stderr: bool = False) -> None:
    """Gives texts, each a line or several, to the sink, from any thread."""
    for text in texts:
        _sinks[-1](text, to_stderr)


@functools.cache
def report_once(text: str) -> None:
    """Reports a text the first time alone."""
    report(text)


@contextmanager
def reported_to(sink: Sink) -> Iterator[None]:
    """Has a sink take the texts of all threads of this process meanwhile."""
    _sinks.append(sink)
    try:
        yield
    finally:
        _sinks.remove(sink)
