"""The terminals of N games, laid out so that a window around a hero is a slice of memory."""

import numpy as np

ROWS, COLUMNS = 24, 80
WINDOW_SIZE = 12
BEFORE = WINDOW_SIZE // 2  # rows of a window above the hero's, and columns left of it

# Blank cells before and after a screen: a window may hang over its top and bottom.
_MARGIN = BEFORE * COLUMNS + BEFORE
_PLANE_SIZE = _MARGIN + ROWS * COLUMNS + _MARGIN
# [hero's column, window's column] 1 on the screen, 0 beside it, where a slice holds a neighbouring row's cell
_ON_SCREEN = np.array(
    [[0 <= x - BEFORE + column < COLUMNS for column in range(WINDOW_SIZE)] for x in range(COLUMNS)], np.uint8
)


class TerminalGroup:
    """Screens for N engines to write.

    Attributes:
      chars: [N, 24, 80] uint8, view of this object's memory, as is
      colors: [N, 24, 80] int8.
    """

    def __init__(self, num_games: int):
        cells = np.zeros((num_games, 2, _PLANE_SIZE), np.uint8)  # characters, colours
        screens = cells[:, :, _MARGIN : _MARGIN + ROWS * COLUMNS].reshape(num_games, 2, ROWS, COLUMNS)
        self.chars, self.colors = screens[:, 0], screens[:, 1].view(np.int8)
        window_cells = (WINDOW_SIZE - 1) * COLUMNS + WINDOW_SIZE
        self._windows = np.lib.stride_tricks.as_strided(  # view: the window that begins at each cell
            cells,
            (cells.size - window_cells + 1, WINDOW_SIZE, WINDOW_SIZE),
            (1, COLUMNS, 1),
            writeable=False,
        )
        self._starts = np.arange(2 * num_games).reshape(num_games, 2) * _PLANE_SIZE  # of a hero's window at (0, 0)

    def windows(self, rows: slice, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The 12 x 12 cells around (x, y): six before and five after it; zero outside the screen.

        Args:
          rows: of the group's n games.
          x: [n] screen columns.
          y: [n] screen rows.

        Returns:
          [n, 2, 12, 12] uint8: characters, colours.
        """
        windows = self._windows[self._starts[rows] + (y * COLUMNS + x)[:, None]]
        windows *= _ON_SCREEN[x][:, None, None, :]
        return windows
