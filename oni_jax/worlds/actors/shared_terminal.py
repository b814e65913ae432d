"""A terminal's screen in shared memory, written only on request."""

import numpy as np

from oni_jax.envs.display import COLUMNS, ROWS, Terminal
from oni_jax.worlds.actors.shared_array import SharedArray

_DTYPE = np.dtype(
    [
        ("is_asked", "?"),
        ("is_there", "?"),
        ("has_cursor", "?"),
        ("chars", "u1", (ROWS, COLUMNS)),
        ("colors", "u1", (ROWS, COLUMNS)),
        ("cursor", "<i4", (2,)),
    ]
)


class SharedTerminal:
    """One process writes, another takes.

    There is no lock: the writer writes while a screen is asked for, the reader reads while none is. On a processor that
    reorders writes, a screen may be a mix of two, which harms nobody who looks at it.
    """

    def __init__(self) -> None:
        self._memory = SharedArray((1,), _DTYPE)
        self._newest: Terminal | None = None  # taken

    @property
    def is_asked(self) -> bool:
        return bool(self._memory.array["is_asked"][0])

    def write(self, terminal: Terminal | None) -> None:
        """Answers with a screen; None: there is none."""
        row = self._memory.array[0]
        row["is_there"] = terminal is not None
        if terminal is not None:
            row["chars"], row["colors"] = terminal.chars, terminal.colors
            row["has_cursor"] = terminal.cursor is not None
            row["cursor"] = 0 if terminal.cursor is None else terminal.cursor
        row["is_asked"] = False

    def take(self) -> Terminal | None:
        """Returns the newest screen written, and asks for the next; None: there is none, or none yet."""
        row = self._memory.array[0]
        if not row["is_asked"]:
            if row["is_there"]:
                cursor = row["cursor"].copy() if row["has_cursor"] else None
                self._newest = Terminal(row["chars"].copy(), row["colors"].copy(), cursor)
            row["is_asked"] = True
        return self._newest
