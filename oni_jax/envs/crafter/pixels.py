"""Crafter's pictures, drawn on the device: by day as the published renderer's, with noise at night.

There the noise is drawn from the world's random numbers, and changes what happens next; here it is a hash of the state.
Colours may differ by 1, as floats have 32 bits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.crafter import view
from oni_jax.envs.crafter.balance import DAY, daylight
from oni_jax.envs.crafter.looks import STANDING
from oni_jax.envs.crafter.state import CELL as CELL_OF_OBJECT
from oni_jax.envs.crafter.state import State
from oni_jax.envs.crafter.textures import CELL, Textures
from oni_jax.envs.crafter.things import DIRECTIONS, ITEMS, PLAYER, SIZE, VIEW
from oni_jax.envs.device.hashing import mix
from oni_jax.types import Array

SIDE = 64  # pixels
GREY_SIDE = 84  # pixels of ELLM's
_WIDTH, _HEIGHT = VIEW
_ITEM_ROWS = -(-len(ITEMS) // _WIDTH)
_LUMA = np.array([19595, 38470, 7471])  # weights of red, green and blue, of 1 << 16
_NOISE = (32.0, 127.0)  # lowest, highest
_ODD = np.uint32(0x9E3779B9)
ASLEEP = len(DIRECTIONS)
_PLAYERS = np.array([0, *range(len(STANDING) - ASLEEP, len(STANDING))])  # indices into STANDING, by direction; asleep


class Scene(NamedTuple):
    """All that a picture shows."""

    tiles: Array  # [9, 7] int; numbers of TILES
    materials: Array  # [9, 7] int; below what stands there
    direction: Array  # [] int; that the player faces
    is_sleeping: Array  # [] bool
    inventory: Array  # [16] int
    light: Array  # [] float32, from 0 to 1
    noise: Array  # [] uint32; seed of the night's noise


def scene(state: State) -> Scene:
    """Returns what the picture of a state shows."""
    at = state.objects[:, CELL_OF_OBJECT].sum() * (SIZE * SIZE) + state.position[0] * SIZE + state.position[1]
    return Scene(
        view.tiles(state),
        view.look(state).materials,
        state.direction,
        state.is_sleeping,
        state.inventory,
        jnp.asarray(daylight(np.arange(DAY)), jnp.float32)[state.num_steps % DAY],
        mix(at.astype(jnp.uint32) * _ODD ^ state.num_steps.astype(jnp.uint32)),
    )


def rgb(textures: Textures, shown: Scene) -> jax.Array:
    """Returns the picture [64, 64, 3] uint8: what the player sees, and below it what it carries."""
    lit = _lit(_view(textures, shown), shown)
    local = jnp.where(shown.is_sleeping, _tinted(_faded(lit, 0.0), (0, 0, 16)), lit)
    owned = jnp.asarray(textures.items)[np.arange(len(ITEMS)), shown.inventory]
    owned = jnp.pad(owned, ((0, _ITEM_ROWS * _WIDTH - len(ITEMS)), *[(0, 0)] * 3))
    inventory = _joined(owned.reshape(_ITEM_ROWS, _WIDTH, CELL, CELL, 3))
    picture = jnp.concatenate([local.astype(jnp.uint8), inventory])
    return jnp.pad(picture, ((0, SIDE - len(picture)), (0, SIDE - picture.shape[1]), (0, 0)))


def grey(picture: jax.Array) -> jax.Array:
    """Returns ELLM's picture [84, 84, 1] uint8 of one [64, 64, 3]: resized bilinearly, then the channels' mean.

    In the fixed point numbers of OpenCV's `resize`.
    """
    first, weights = _bilinear(SIDE, GREY_SIDE)
    x = picture.astype(jnp.int32)
    across = x[:, first] * weights[:, :1] + x[:, first + 1] * weights[:, 1:]
    upper, lower = ((across[first + i] >> 4) * weights[:, i, None, None] >> 16 for i in (0, 1))
    return (((upper + lower + 2) >> 2).sum(axis=2, keepdims=True) // 3).astype(jnp.uint8)


def _bilinear(size: int, new_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each of the new pixels the first of two old ones, and their weights [new_size, 2] of 1 << 11."""
    at = (np.arange(new_size) + 0.5) * size / new_size - 0.5
    first = np.clip(np.floor(at), 0, size - 2).astype(np.int32)
    fraction = np.clip(at - first, 0, 1)
    return first, np.rint(np.stack([1 - fraction, fraction], axis=1) * (1 << 11)).astype(np.int32)


def _view(textures: Textures, shown: Scene) -> jax.Array:
    """Returns what the player sees as by day, [49, 63, 3] uint8."""
    player = jnp.asarray(_PLAYERS)[jnp.where(shown.is_sleeping, ASLEEP, shown.direction)]
    standing = jnp.where(shown.tiles == PLAYER, player, shown.tiles.astype(jnp.int32) - PLAYER)
    return _joined(jnp.asarray(textures.cells)[jnp.maximum(standing + 1, 0).T, shown.materials.T])


def _joined(cells: jax.Array) -> jax.Array:
    """Returns [R * 7, C * 7, 3] of cells [R, C, 7, 7, 3]."""
    rows, columns = cells.shape[:2]
    return cells.transpose(0, 2, 1, 3, 4).reshape(rows * CELL, columns * CELL, 3)


def _lit(picture: jax.Array, shown: Scene) -> jax.Array:
    """Returns a picture [H, W, 3] by the scene's light, float32."""
    x, light = picture.astype(jnp.float32), shown.light
    height, width = picture.shape[:2]
    rows, columns = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    vignette = (1 - np.exp(-0.5 * (rows**2 + columns**2) / 0.5**2)).astype(np.float32)
    mask = (jnp.maximum(0, 1 - 2 * light) * vignette)[..., None]
    noise = _NOISE[0] + (_NOISE[1] - _NOISE[0]) * _uniform(shown.noise, height, width)
    night = _tinted(_faded((1 - mask) * x + mask * noise, 0.4), (0, 16, 64))
    return light * x + (1 - light) * night


def _faded(picture: jax.Array, color: float) -> jax.Array:
    """Returns a picture with so much of its colours, as Pillow's `ImageEnhance.Color`."""
    x = picture.astype(jnp.uint8).astype(jnp.int32)
    grey = ((x * _LUMA).sum(axis=-1, keepdims=True) + (1 << 15)) >> 16
    return jnp.floor(grey + jnp.float32(color) * (x - grey))


def _tinted(picture: jax.Array, color: tuple[int, int, int]) -> jax.Array:
    return 0.5 * picture + 0.5 * jnp.array(color, jnp.float32)


def _uniform(seed: jax.Array, height: int, width: int) -> jax.Array:
    """Returns [H, W, 1] float32 on [0, 1)."""
    bits = mix(jnp.arange(height * width, dtype=jnp.uint32) * _ODD ^ seed).reshape(height, width, 1)
    return (bits >> 8).astype(jnp.float32) * 2.0**-24
