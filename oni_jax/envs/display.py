"""The interface of environments that people look at and play: a terminal, and keys. Nothing here needs a terminal."""

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from oni_jax.envs.base import VectorEnv
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import EnvSpec

ROWS, COLUMNS = 24, 80  # size of all terminals
INVERSE = 16  # added to a colour
GRAY, DARK_GRAY, WHITE = 7, 8, 15


class Terminal(NamedTuple):
    chars: np.ndarray  # [24, 80] uint8
    colors: np.ndarray  # [24, 80] uint8 or int8, a terminal's 16 colours, + INVERSE
    cursor: np.ndarray | None = None  # [2] row, column


class Canvas:
    """A terminal to write texts on."""

    def __init__(self) -> None:
        self._chars = np.full((ROWS, COLUMNS), ord(" "), np.uint8)
        self._colors = np.full((ROWS, COLUMNS), GRAY, np.uint8)

    def write(self, row: int, column: int, text: str, color: int = GRAY) -> None:
        """Writes as much of a text as there is room for."""
        if row < ROWS:
            text = text[: COLUMNS - column]
            self._chars[row, column : column + len(text)] = list(text.encode("ascii", "replace"))
            self._colors[row, column : column + len(text)] = color

    def write_wrapped(self, row: int, column: int, text: str, width: int, color: int = GRAY) -> int:
        """Writes a text in lines of a width. Returns the row below it."""
        for line in textwrap.wrap(text, width):
            self.write(row, column, line, color)
            row += 1
        return row

    def terminal(self) -> Terminal:
        return Terminal(self._chars, self._colors)


def drawn(draw: Callable[[], Terminal | None]) -> Terminal | None:
    """Returns what `draw` returns; where it fails, a terminal that says why, since a run goes on when it is watched."""
    try:
        terminal = draw()
        return None if terminal is None else _checked(terminal)
    except Exception as error:  # an error of a plugin
        return failed_terminal(error)


def _checked(terminal: Terminal) -> Terminal:
    """Returns the terminal as arrays of numbers. Raises errors of any kind: it is none."""
    shapes = {"chars": (ROWS, COLUMNS), "colors": (ROWS, COLUMNS), "cursor": (2,)}
    parts = {name: np.asarray(part) for name, part in terminal._asdict().items() if part is not None}
    for name, part in parts.items():
        if part.shape != shapes[name] or part.dtype.kind not in "iu":
            raise ValueError(f"{name} of a terminal are integers {[*shapes[name]]}, not {part.dtype} {[*part.shape]}")
    return Terminal(**parts)


def failed_terminal(error: Exception) -> Terminal:
    """Returns a terminal that says why there is none."""
    canvas, name = Canvas(), type(error).__name__
    try:
        text = f"{name}: {error}"
    except Exception:  # an error without words, either
        text = name
    canvas.write_wrapped(0, 0, f"The environment can't be drawn: {text}", COLUMNS)
    return canvas.terminal()


class WatchedEnv(VectorEnv, Protocol):
    """One episode of one environment. After its end the terminal still shows that; don't step it further."""

    def terminal(self) -> Terminal: ...

    def turn(self) -> int | None:
        """Returns the game time; None where steps are all there is."""
        return None


class ActionKey(NamedTuple):
    key: int  # a byte as terminals send it, + 0x80 with Meta; arrows stand for h, j, k and l
    words: str  # name of the action
    in_help: bool = True  # False: named in `Display.moves`


class Display(NamedTuple):
    """Looks and keys of a family of tasks."""

    # (settings, spec with the observations to show, seed, index of the environment among all with this seed, number of
    # its episode, file to record the terminal's output in, where there is a real one; "": none). Raises OSError: the
    # file can't be written
    watch: Callable[[EnvConfig, EnvSpec, int, int, int, str], WatchedEnv]
    keys: Callable[[EnvConfig], Sequence[ActionKey]]  # keys of a task's actions, in order
    moves: str = ""  # help on keys that belong together
