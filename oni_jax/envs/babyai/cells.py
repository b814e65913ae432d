"""Cells of a MiniGrid world as bytes: type | colour << 3 | state << 6. Functions take NumPy and JAX arrays.

Numbers of types, colours and states are MiniGrid's.
"""

from typing import TypeVar

import numpy as np

TYPES = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box")
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
DOOR_STATES = ("open", "closed", "locked")

DOOR, KEY, BALL, BOX = (TYPES.index(name) for name in ("door", "key", "ball", "box"))
UNSEEN, EMPTY = (TYPES.index(name) for name in ("unseen", "empty"))  # as cells: colour and state 0
WALL = TYPES.index("wall") | COLOURS.index("grey") << 3
# State 3, which no door has: an object was here when instructions last looked, and is gone. See `rules.py`.
VACATED = 3 << 6

Cells = TypeVar("Cells")  # an array of uint8, or an int


def cell_of(colour: str, type_name: str) -> int:
    """Returns the cell of an object, such as ("red", "ball")."""
    return TYPES.index(type_name) | COLOURS.index(colour) << 3


def type_of(cells: Cells) -> Cells:
    return cells & 7  # type: ignore[operator]


def colour_of(cells: Cells) -> Cells:
    return cells >> 3 & 7  # type: ignore[operator]


def state_of(cells: Cells) -> Cells:
    return cells >> 6  # type: ignore[operator]


def is_object(cells: Cells) -> Cells:
    """Returns True for what can be carried, and still stands there."""
    return (type_of(cells) >= KEY) & (cells < VACATED)  # type: ignore[operator]


def pack(image: np.ndarray) -> np.ndarray:
    """Returns the cells [...] of MiniGrid's three channels [..., 3] uint8."""
    return image[..., 0] | image[..., 1] << 3 | image[..., 2] << 6
