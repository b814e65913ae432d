"""Table of a terminal's cells, from which an accelerator draws windows of characters and colours.

`font_6x6.npy` [256, 6, 6] uint8 holds the ink of each character, 0 to 255. It was made once, with Pillow, from
DejaVu Sans Mono Bold (licence in font_6x6.LICENSE): characters drawn at 199 pixels an em, cut to the advance's width
and to the rows between the highest and the lowest ink of printable ASCII, then averaged down to 6 x 6. Codes above
127 are those of code page 437; below 32, and 127, are blank.
"""

import pathlib

import numpy as np

COLORS = (
    "000000 800000 008000 808000 000080 800080 008080 808080 C0C0C0 FF0000 00FF00 FFFF00 0000FF FF00FF 00FFFF FFFFFF"
)
FONT_FILE = pathlib.Path(__file__).with_name("font_6x6.npy")


def glyph_table() -> np.ndarray:
    """Returns [256 characters, 16 colours, 6 rows, 6 columns, 3 channels] uint8, on black."""
    return in_every_color(np.load(FONT_FILE, allow_pickle=False))


def in_every_color(ink: np.ndarray) -> np.ndarray:
    """Makes a glyph table of the characters' ink, [256, 6, 6] uint8."""
    colors = np.frombuffer(bytes.fromhex(COLORS), np.uint8).reshape(16, 3).astype(np.uint16)
    table = (ink.astype(np.uint16)[:, None, :, :, None] * colors[:, None, None, :] + 127) // 255
    return table.astype(np.uint8)
