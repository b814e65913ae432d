"""What a game sends to its terminal, as screens.

Knows the escape sequences that NLE's NetHack sends, and passes over others. Whatever the bytes are, a screen comes of
them: nothing of a recording reaches the terminal of who watches it but characters and colours.
"""

import re

import numpy as np

from oni_jax.viewing.screen import COLUMNS, GRAY, INVERSE, ROWS, Screen, blank, printable

MAX_NUMBER_SIZE = 4  # digits
_PIECE = re.compile(
    rb"(?P<text>[\x20-\x7e\x80-\xff]+)"
    rb"|\x1b\[(?P<numbers>[0-9;]*)(?P<final>[@A-Za-z])"
    rb"|(?P<control>[\b\t\n\r])"
    rb"|\x1b(\[[\x20-\x3f]*[\x40-\x7e]|[()*+][\x20-\x7e]|.)?|.",  # unknown
    re.DOTALL,
)
TAB = 8


class Terminal:
    """One of ROWS x COLUMNS cells."""

    def __init__(self, rows: int = ROWS, columns: int = COLUMNS):
        self._rows, self._columns = rows, columns
        self._screen = blank(rows, columns)
        self._row = self._column = 0
        self._reset_style()

    def screen(self) -> Screen:
        """What it shows now: a copy."""
        chars, colors, _ = self._screen
        return Screen(chars.copy(), colors.copy(), (self._row, min(self._column, self._columns - 1)))

    def feed(self, output: bytes) -> None:
        """Takes in whole escape sequences; a part of one at the end is passed over."""
        for piece in _PIECE.finditer(output):
            if text := piece["text"]:
                self._write(text)
            elif final := piece["final"]:
                numbers = [int(number[:MAX_NUMBER_SIZE] or 0) for number in piece["numbers"].split(b";")]
                self._obey(final.decode(), numbers)
            elif control := piece["control"]:
                self._control(control)

    def _reset_style(self) -> None:
        self._hue, self._bright, self._inverse = GRAY, False, False

    def _color(self) -> int:
        return self._hue | 8 * self._bright | INVERSE * self._inverse

    def _write(self, text: bytes) -> None:
        cells = printable(np.frombuffer(text, np.uint8))
        while len(cells):
            if self._column == self._columns:  # the last column is left when there is more
                self._column = 0
                self._line_feed()
            part = cells[: self._columns - self._column]
            place = slice(self._column, self._column + len(part))
            self._screen.chars[self._row, place] = part
            self._screen.colors[self._row, place] = self._color()
            self._column += len(part)
            cells = cells[len(part) :]

    def _line_feed(self) -> None:
        if self._row < self._rows - 1:
            self._row += 1
            return
        for cells in self._screen[:2]:
            cells[:-1] = cells[1:].copy()
        self._erase(slice(self._row, None), slice(None))

    def _control(self, control: bytes) -> None:
        column = min(self._column, self._columns - 1)
        if control == b"\n":
            self._line_feed()
        elif control == b"\r":
            self._column = 0
        elif control == b"\b":
            self._column = max(0, column - 1)
        else:
            self._column = min(self._columns - 1, (column // TAB + 1) * TAB)

    def _obey(self, final: str, numbers: list[int]) -> None:
        count = max(1, numbers[0])
        column = min(self._column, self._columns - 1)
        if final in "Hf":
            self._move(numbers[0] - 1, (numbers[1] if len(numbers) > 1 else 1) - 1)
        elif final in "ABCD":
            down, right = {"A": (-1, 0), "B": (1, 0), "C": (0, 1), "D": (0, -1)}[final]
            self._move(self._row + down * count, column + right * count)
        elif final == "G":
            self._move(self._row, count - 1)
        elif final == "d":
            self._move(count - 1, column)
        elif final == "K":
            self._erase(slice(self._row, self._row + 1), self._erased(numbers[0], column))
        elif final == "J":
            rows = self._erased(numbers[0], self._row)
            if numbers[0] < 2:
                self._erase(slice(self._row, self._row + 1), self._erased(numbers[0], column))
                rows = slice(self._row + 1, None) if numbers[0] == 0 else slice(0, self._row)
            self._erase(rows, slice(None))
        elif final == "m":
            for number in numbers:
                self._choose_style(number)

    def _move(self, row: int, column: int) -> None:
        self._row = min(max(0, row), self._rows - 1)
        self._column = min(max(0, column), self._columns - 1)

    @staticmethod
    def _erased(what: int, place: int) -> slice:
        """Of a line, or of the lines: behind the cursor, before it, or all."""
        return slice(place, None) if what == 0 else slice(0, place + 1) if what == 1 else slice(None)

    def _erase(self, rows: slice, columns: slice) -> None:
        self._screen.chars[rows, columns] = ord(" ")
        self._screen.colors[rows, columns] = GRAY

    def _choose_style(self, number: int) -> None:
        if number == 0:
            self._reset_style()
        elif number == 1:
            self._bright = True
        elif number == 22:
            self._bright = False
        elif number in (7, 27):
            self._inverse = number == 7
        elif 30 <= number < 38:
            self._hue = number - 30
        elif number == 39:
            self._hue = GRAY
        elif 90 <= number < 98:
            self._hue, self._bright = number - 90, True
