"""Textures of Crafter's cells and items: plain ones, or the published ones, where `crafter` is installed."""

import functools
import importlib.util
import pathlib
from typing import NamedTuple

import numpy as np

from oni_jax.envs.crafter.looks import ITEM_COLORS, MATERIAL_LOOKS, STANDING, Look
from oni_jax.envs.crafter.things import ITEMS, MATERIALS, MAX_AMOUNT
from oni_jax.ops.glyph_table import COLORS, FONT_FILE
from oni_jax.settings.fields import UserError

CELL = 7  # pixels
OUTSIDE = 127  # grey beyond the map
PLAIN, PUBLISHED = "plain", "published"
_ITEM, _AMOUNT = (0, 5), (2, 4)  # first pixel in a cell, and size, of an item and of its amount
_DIM = 3  # times darker is a plain cell's background
# The published names of STANDING
_STANDING_FILES = ("player-left", "cow", "zombie", "skeleton", "arrow-left", "plant", "plant-ripe")
_STANDING_FILES += ("arrow-right", "arrow-up", "arrow-down", "player-right", "player-up", "player-down", "player-sleep")
assert len(_STANDING_FILES) == len(STANDING)


class Textures(NamedTuple):
    """Pictures of 7 x 7 pixels, by row and column, RGB uint8."""

    cells: np.ndarray  # [1 + S, M, 7, 7, 3]; of what stands on each material, as STANDING, after nothing
    items: np.ndarray  # [16, 10, 7, 7, 3]; of each item and amount, none of it black


@functools.cache
def load_textures(name: str) -> Textures:
    """Loads `plain` or `published` textures. Raises UserError: the published ones are not installed."""
    return _plain() if name == PLAIN else _published()


def _plain() -> Textures:
    font = np.load(FONT_FILE, allow_pickle=False)
    colors = np.frombuffer(bytes.fromhex(COLORS), np.uint8).reshape(-1, 3)

    def picture(look: Look) -> np.ndarray:
        """Returns a character [7, 7, 4] in its colour, with its ink as alpha."""
        ink = np.pad(font[ord(look.char)], ((0, 1), (0, 1)))[..., None]
        return np.concatenate([np.broadcast_to(colors[look.color], (CELL, CELL, 3)), ink], axis=-1)

    grounds = [np.full((CELL, CELL, 3), colors[look.color] // _DIM, np.uint8) for look in MATERIAL_LOOKS.values()]
    grounds[0][:] = OUTSIDE
    empty = [_blend(ground, picture(look)) for ground, look in zip(grounds, MATERIAL_LOOKS.values())]
    cells = [empty, *([_blend(ground, picture(look)) for ground in grounds] for look in STANDING)]
    items = np.zeros((len(ITEMS), MAX_AMOUNT + 1, CELL, CELL, 3), np.uint8)
    for item, color in enumerate(ITEM_COLORS):
        for amount in range(1, MAX_AMOUNT + 1):
            ground = np.full((CELL, CELL, 3), colors[color] // _DIM, np.uint8)
            items[item, amount] = _blend(ground, picture(Look(str(amount), color)))
    return Textures(np.array(cells), items)


def _published() -> Textures:
    found = importlib.util.find_spec("crafter")
    if found is None or found.origin is None:
        raise UserError(
            f"--crafter_textures {PUBLISHED}: they come with crafter, which is not installed: pip install 'crafter<2'"
        )
    assets = pathlib.Path(found.origin).parent / "assets"

    def picture(name: str, size: int = CELL) -> np.ndarray:
        """Returns [size, size, 4]."""
        from PIL import Image

        image = Image.open(assets / f"{name}.png").convert("RGBA")
        return np.array(image.resize((size, size), resample=Image.Resampling.NEAREST))

    grounds = [np.full((CELL, CELL, 3), OUTSIDE, np.uint8), *(picture(name)[..., :3] for name in MATERIALS[1:])]
    cells = [grounds, *([_blend(ground, picture(name)) for ground in grounds] for name in _STANDING_FILES)]
    items = np.zeros((len(ITEMS), MAX_AMOUNT + 1, CELL, CELL, 3), np.uint8)
    for item, name in enumerate(ITEMS):
        for amount in range(1, MAX_AMOUNT + 1):
            for (first, size), shown in ((_ITEM, name), (_AMOUNT, str(amount))):
                part = items[item, amount, first : first + size, first : first + size]
                part[:] = _blend(part, picture(shown, size))
    return Textures(np.array(cells), items)


def _blend(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Returns [H, W, 3] of below [H, W, 3] and above [H, W, 4], RGBA."""
    alpha, color = above[..., 3:].astype(np.float32) / 255, above[..., :3].astype(np.float32) / 255
    return (255 * (alpha * color + (1 - alpha) * (below.astype(np.float32) / 255))).astype(np.uint8)
