"""A terminal's screen as arrays, and as ANSI escape sequences."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.envs.display import INVERSE, Terminal

# Colours, as terminals number them: 8 more is the bright one.
RED, GREEN, BROWN, BLUE, GRAY, DARK_GRAY, YELLOW, CYAN, WHITE = 1, 2, 3, 4, 7, 8, 11, 14, 15

SPACE, UNKNOWN = ord(" "), ord("?")
RESET = "\x1b[0m"
HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", f"{RESET}\x1b[K", f"{RESET}\x1b[J"


class Screen(NamedTuple):
    """R rows of C cells."""

    chars: np.ndarray  # [R, C] uint8, printable ASCII
    colors: np.ndarray  # [R, C] uint8, in [0, 16), + INVERSE
    cursor: tuple[int, int] | None = None  # row, column


class Text(NamedTuple):
    """A paragraph of text, wrapped to lines."""

    text: str
    color: int = GRAY


def blank(rows: int, columns: int) -> Screen:
    return Screen(np.full((rows, columns), SPACE, np.uint8), np.full((rows, columns), GRAY, np.uint8))


def terminal_screen(terminal: Terminal) -> Screen:
    """Copies an environment's terminal."""
    chars, colors, cursor = terminal
    row_column = None if cursor is None else (int(cursor[0]), int(cursor[1]))
    return Screen(printable(chars), colors.astype(np.uint8) % (2 * INVERSE), row_column)


def printable(chars: np.ndarray) -> np.ndarray:
    """Returns a copy of chars, uint8, without control characters."""
    return np.where((chars >= SPACE) & (chars < 127), chars, np.where(chars == 0, SPACE, UNKNOWN)).astype(np.uint8)


def wrapped(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, subsequent_indent="  ", break_on_hyphens=False) or [""]


def num_lines(texts: Iterable[Text], columns: int) -> int:
    """Returns how many rows wrapped texts take."""
    return sum(len(wrapped(text, columns)) for text, _ in texts)


def text_screen(texts: Iterable[Text], rows: int, columns: int) -> Screen:
    """Returns a screen of wrapped texts, cut off at the bottom."""
    screen = blank(rows, columns)
    row = 0
    for text, color in texts:
        for line in wrapped(text, columns):
            if row < rows:
                cells = np.frombuffer(line.encode("ascii", "replace"), np.uint8)
                screen.chars[row, : len(cells)] = printable(cells)
                screen.colors[row, : len(cells)] = color
            row += 1
    return screen


def joined(parts: Sequence[Screen], below: bool = False) -> Screen:
    """Joins screens side by side, or below each other, with blank padding. The cursor is the first one's."""
    axis = 0 if below else 1
    size = max(part.chars.shape[1 - axis] for part in parts)

    def filled(cells: np.ndarray, value: int) -> np.ndarray:
        missing = size - cells.shape[1 - axis]
        return np.pad(cells, [(0, 0), (0, missing)] if below else [(0, missing), (0, 0)], constant_values=value)

    chars = np.concatenate([filled(part.chars, SPACE) for part in parts], axis)
    colors = np.concatenate([filled(part.colors, GRAY) for part in parts], axis)
    return Screen(chars, colors, parts[0].cursor)


def cropped(screen: Screen, rows: int, columns: int) -> Screen:
    """Returns the upper left part of a screen, without the cursor where that is outside."""
    inside = screen.cursor is not None and screen.cursor[0] < rows and screen.cursor[1] < columns
    return Screen(screen.chars[:rows, :columns], screen.colors[:rows, :columns], screen.cursor if inside else None)


def shown_colors(screen: Screen) -> np.ndarray:
    """Returns a copy of the colours [R, C] uint8, inverted at the cursor."""
    colors = screen.colors.copy()
    if screen.cursor is not None:
        row, column = screen.cursor
        colors[min(row, len(colors) - 1), min(column, colors.shape[1] - 1)] ^= INVERSE
    return colors


def ansi_rows(screen: Screen) -> list[str]:
    """Returns each row as text with escape sequences, on black whatever the terminal's colours are."""
    rows = []
    for chars, colors in zip(screen.chars, shown_colors(screen)):
        edges = [0, *(np.flatnonzero(np.diff(colors)) + 1).tolist(), len(colors)]
        runs = [_sgr(int(colors[a])) + chars[a:b].tobytes().decode("ascii") for a, b in zip(edges, edges[1:])]
        rows.append("".join(runs) + RESET)
    return rows


def _sgr(color: int) -> str:
    """Returns the escape sequence that selects a colour."""
    inverse, color = divmod(color, INVERSE)
    color = color or DARK_GRAY  # black would be invisible
    code = 30 + color if color < 8 else 90 + color - 8
    return f"\x1b[0;{'7;' * inverse}40;{code}m"
