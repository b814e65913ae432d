"""Screens of a terminal that was sent some bytes, or a recording of NLE's, by NLE's reader."""

import bz2
import pathlib
import struct

import numpy as np
from nle.dataset import Converter

from oni_jax.envs.display import COLUMNS, ROWS, Terminal
from oni_jax.envs.screen import Screen, terminal_screen

NUM_SCREENS = 2048
KEY = struct.pack("<iiiB", 0, 0, 1, 1) + b"\0"


def screens(path: pathlib.Path) -> list[Screen]:
    """The screen at each key of a recording but the last."""
    shapes = ((ROWS, COLUMNS), np.uint8), ((ROWS, COLUMNS), np.int8), ((2,), np.int16), ((), np.int64)
    arrays = [np.zeros((NUM_SCREENS, *shape), dtype) for shape, dtype in (*shapes, ((), np.uint8), ((), np.int32))]
    converter = Converter(ROWS, COLUMNS, 3)
    converter.load_ttyrec(str(path), 1)
    count = NUM_SCREENS - converter.convert(*arrays)
    return [terminal_screen(Terminal(*(array[i] for array in arrays[:3]))) for i in range(count)]


def terminal(path: pathlib.Path, sent: bytes) -> Screen:
    """The screen after these bytes; `path` is written."""
    path.write_bytes(bz2.compress(struct.pack("<iiiB", 0, 0, len(sent), 0) + sent + 3 * KEY))
    return screens(path)[0]
