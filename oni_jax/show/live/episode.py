"""An episode that is being played, as rows of the live view."""

import numpy as np

from oni_jax.envs.display import Terminal
from oni_jax.envs.screen import SPACE, Screen, ansi_rows, shown_colors, terminal_screen


def episode_rows(terminal: Terminal, width: int, height: int, has_colors: bool) -> list[str]:
    """Returns `height` rows at most, `width` columns of each. Blank rows are left out first, from below."""
    screen = terminal_screen(terminal)
    order = np.argsort((screen.chars == SPACE).all(axis=1), kind="stable")
    rows = np.sort(order[:height])
    kept = Screen(screen.chars[rows, :width], shown_colors(screen)[rows, :width])
    return ansi_rows(kept) if has_colors else [row.tobytes().decode("ascii") for row in kept.chars]
