"""Screen buffers of N games, laid out so that a window around a hero is a slice of memory."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from oni_jax.envs.display import Canvas, Terminal
from oni_jax.envs.nethack.tasks import nethack

WINDOW_SIZE = 12
BEFORE = WINDOW_SIZE // 2  # rows of a window above the hero's, and columns left of it
MARGIN_ROWS = BEFORE + 1  # a window hangs over the top or bottom by no more


class View(NamedTuple):
    """Engine arrays of a screen."""

    chars: str
    colors: str
    first_row: int  # terminal row of their first row


VIEWS: Mapping[str, View] = {
    "terminal": View("tty_chars", "tty_colors", 0),  # also the line of messages, the statistics and menus
    "map": View("chars", "colors", 1),
}
BLSTATS = {name.removeprefix("NLE_BL_"): getattr(nethack, name) for name in dir(nethack) if name.startswith("NLE_BL_")}
STATISTICS = "Dlvl:{DLEVEL} $:{GOLD} HP:{HP}({HPMAX}) Pw:{ENE}({ENEMAX}) AC:{AC} Xp:{XP}/{EXP} T:{TIME}"


class Screens:
    """Screen buffers that N engines write, in one of the VIEWS.

    Attributes:
      arrays: the engine's name -> [N, rows, columns], for engine i to write into row i.
    """

    def __init__(self, num_games: int, view: View):
        rows, columns = nethack.OBSERVATION_DESC[view.chars]["shape"]
        margin = MARGIN_ROWS * columns + BEFORE  # blank cells before and after a screen
        plane_size = margin + rows * columns + margin
        cells = np.zeros((num_games, 2, plane_size), np.uint8)  # characters, colours
        screens = cells[:, :, margin : margin + rows * columns].reshape(num_games, 2, rows, columns)
        self.arrays = {
            name: screens[:, plane].view(nethack.OBSERVATION_DESC[name]["dtype"])
            for plane, name in enumerate((view.chars, view.colors))
        }
        window_cells = (WINDOW_SIZE - 1) * columns + WINDOW_SIZE
        self._columns = columns
        self._windows = np.lib.stride_tricks.as_strided(  # view: the window that begins at each cell
            cells, (cells.size - window_cells + 1, WINDOW_SIZE, WINDOW_SIZE), (1, columns, 1), writeable=False
        )
        # Index of the first cell of the window of a hero at (0, 0)
        first = margin - (BEFORE + view.first_row) * columns - BEFORE
        self._starts = first + np.arange(2 * num_games).reshape(num_games, 2) * plane_size
        # [hero's column, window's column] 1 on the screen, 0 outside, where a slice holds a neighbouring row's cell
        self._on_screen = np.array(
            [[0 <= x - BEFORE + column < columns for column in range(WINDOW_SIZE)] for x in range(columns)], np.uint8
        )

    def windows(self, rows: slice, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Returns the 12 x 12 cells around (x, y) of the terminal, six before and five after it; zero outside.

        Args:
          rows: rows of n games of the group.
          x: [n] terminal columns.
          y: [n] terminal rows.

        Returns:
          [n, 2, 12, 12] uint8: characters, colours.
        """
        windows = self._windows[self._starts[rows] + (y * self._columns + x)[:, None]]
        windows *= self._on_screen[x][:, None, None, :]
        return windows


def map_terminal(chars: np.ndarray, colors: np.ndarray, message: bytes, blstats: np.ndarray) -> Terminal:
    """Returns a map [21, 79] on a terminal, with the message above it and the main statistics below."""
    canvas = Canvas()
    canvas.write(0, 0, message.decode("latin-1"))
    canvas.write(len(chars) + 2, 0, STATISTICS.format_map({name: blstats[i] for name, i in BLSTATS.items()}))
    terminal = canvas.terminal()
    for whole, part in zip(terminal[:2], (chars, colors)):
        whole[1 : 1 + len(part), : part.shape[1]] = part
    return terminal
