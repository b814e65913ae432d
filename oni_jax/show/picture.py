"""Screens as images with a palette."""

import functools
import os

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from oni_jax.envs.display import INVERSE
from oni_jax.envs.screen import Screen, shown_colors

FONT_SIZE = 16  # pixels
NUM_LEVELS = 8  # levels from the background to the full colour
NUM_CHARS = 128
# A terminal's 16 colours on black: black as dark grey and the blues lighter, so that they can be read.
NORMAL = "#696969 #d74646 #46be46 #c88c32 #6482ff #c85ac8 #32bebe #c8c8c8"
BRIGHT = "#8c8c8c #ff785a #82ff82 #ffff64 #96b4ff #ff96ff #78ffff #ffffff"
COLORS = [ImageColor.getrgb(color) for color in (NORMAL + " " + BRIGHT).split()]


def palette() -> np.ndarray:
    """Returns RGB [16 * NUM_LEVELS, 3] uint8: NUM_LEVELS levels of each colour, from black to the full colour."""
    levels = np.arange(NUM_LEVELS) / (NUM_LEVELS - 1)
    return (np.array(COLORS)[:, None] * levels[:, None] + 0.5).astype(np.uint8).reshape(-1, 3)


def picture(screen: Screen, font_size: int = FONT_SIZE) -> np.ndarray:
    """Returns [height, width] uint8, indices into `palette()`. Both sizes are even, as video codecs require."""
    colors = shown_colors(screen)[:, :, None, None]
    levels = cells(font_size)[screen.chars]  # [R, C, height, width]
    levels = np.where(colors >= INVERSE, NUM_LEVELS - 1 - levels, levels)
    # One index for every black: files with fewer colours are smaller.
    indices = np.where(levels == 0, 0, colors % INVERSE * NUM_LEVELS + levels).astype(np.uint8)
    height, width = (size * count for size, count in zip(levels.shape[2:], levels.shape))
    indices = indices.transpose(0, 2, 1, 3).reshape(height, width)
    return np.pad(indices, [(0, height % 2), (0, width % 2)])


@functools.cache
def cells(font_size: int) -> np.ndarray:
    """Returns the levels [NUM_CHARS, height, width] uint8 of each character's image."""
    font = ImageFont.truetype(font_path(), font_size)
    ascent, descent = font.getmetrics()
    width = round(font.getlength("M"))
    drawn = np.zeros((NUM_CHARS, ascent + descent, width), np.uint8)
    for code in range(ord("!"), ord("~") + 1):
        image = Image.new("L", (width, ascent + descent))
        ImageDraw.Draw(image).text((0, 0), chr(code), fill=255, font=font)
        drawn[code] = np.rint(np.asarray(image) / 255 * (NUM_LEVELS - 1))
    return drawn


def font_path() -> str:
    """Returns the path of a monospaced font, which matplotlib includes."""
    import matplotlib  # takes a while

    return os.path.join(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSansMono.ttf")
