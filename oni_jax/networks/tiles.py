"""Images made of tiles out of a small set, such as a terminal's characters."""

from typing import NamedTuple

import chex
import jax.numpy as jnp

from oni_jax.types import Array


class TiledImages(NamedTuple):
    """N images of R x C tiles."""

    codes: Array  # [N, R, C] int32, into tiles
    tiles: Array  # [G, S, S, channels], in the type to compute in


def draw(images: TiledImages) -> Array:
    """Returns the pixels, [N, R * S, C * S, channels]."""
    chex.assert_rank(list(images), [3, 4])
    count, rows, columns = images.codes.shape
    size, channels = images.tiles.shape[2:]
    pixels = jnp.asarray(images.tiles)[images.codes].swapaxes(2, 3)
    return pixels.reshape(count, rows * size, columns * size, channels)
