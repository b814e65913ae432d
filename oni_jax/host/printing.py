"""Text for terminals: what a name or a text from outside holds of control characters is escaped."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from oni_jax.settings.fields import printable


class Escaping:
    """A stream that escapes what is printed to another one, but for ends of lines and tabs.

    Args:
        stream: takes text. What draws on a terminal writes to it directly, see `unescaped`.
    """

    def __init__(self, stream: Any):
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(printable(text, keep="\n\t"))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def unescaped(stream: Any) -> Any:
    """Returns the stream that takes a terminal's codes."""
    return stream.stream if isinstance(stream, Escaping) else stream


def escape_printed() -> None:
    """Has all that is printed from now on escaped."""
    sys.stdout, sys.stderr = Escaping(unescaped(sys.stdout)), Escaping(unescaped(sys.stderr))


@contextmanager
def printed_escaped() -> Iterator[None]:
    """Has all that is printed meanwhile escaped."""
    streams = sys.stdout, sys.stderr
    escape_printed()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
