"""Convolution of tiled images by look-up.

A window of the convolution covers a few whole or cut tiles. The contribution of each tile to a window, for each way to
cut it, is computed once; the convolution of an image is then a sum of rows of that table, and its gradient a scatter.
This is several times faster than drawing the image and convolving it.
"""

import itertools
import math
from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np

from oni_jax.types import Array


class _Cuts(NamedTuple):
    """Cuts of the tiles by the windows of a convolution along one axis. W windows, each on at most M tiles, P cuts."""

    tiles: np.ndarray  # [W, M] index of the tile
    cuts: np.ndarray  # [W, M] index of its cut
    taps: np.ndarray  # [P, S] row of the kernel on each row of a tile cut so; past its last row where none is
    num_cuts: int


def tile_table(tiles: Array, kernel: Array, stride: int) -> Array:
    """Computes the contribution of every tile to a window, for every cut.

    tiles [G, S, S, channels], kernel [K, K, channels, O] -> [G * P * P, O] of the kernel's type: neither the
    summands nor those of the gradient are rounded to the tiles' type.
    """
    chex.assert_rank([tiles, kernel], 4)
    taps = _cut(kernel.shape[0], stride, tiles.shape[1]).taps
    padded = jnp.pad(kernel, ((0, 1), (0, 1), (0, 0), (0, 0)))
    cut_kernels = padded[taps][:, :, taps]  # [P, S, P, S, channels, O]
    columns = cut_kernels.transpose(1, 3, 4, 0, 2, 5).reshape(math.prod(tiles.shape[1:]), -1)
    table = tiles.reshape(len(tiles), -1) @ columns.astype(tiles.dtype)
    return table.astype(kernel.dtype).reshape(-1, kernel.shape[3])


def conv_of_tiles(codes: Array, table: Array, kernel_size: int, stride: int, tile_size: int, block_size: int) -> Array:
    """Convolves without padding, by `tile_table` of the kernel; codes [N, R, C].

    Positions come in blocks, the layout for a convolution with stride `block_size` (`matrix_products.conv2d`):
    [N, H / block_size, W / block_size, block_size**2, O]. The remainder at the edges is dropped.
    """
    chex.assert_rank([codes, table], [3, 2])
    down = _cut(kernel_size, stride, tile_size, codes.shape[1], block_size)
    across = _cut(kernel_size, stride, tile_size, codes.shape[2], block_size)
    cuts = down.cuts[:, :, None, None] * down.num_cuts + across.cuts
    rows = codes[:, down.tiles][:, :, :, across.tiles] * down.num_cuts**2 + cuts  # [N, H, M, W, M]
    shape = codes.shape[0], len(down.tiles) // block_size, block_size, -1, block_size
    parts = []
    for i, j in itertools.product(range(rows.shape[2]), range(rows.shape[4])):
        blocks = rows[:, :, i, :, j].reshape(shape).swapaxes(2, 3)
        parts.append(table.at[blocks.reshape(*blocks.shape[:3], -1)].get(mode="promise_in_bounds"))
    return sum(parts[1:], parts[0])


def _cut(kernel_size: int, stride: int, tile_size: int, num_tiles: int = 0, block_size: int = 1) -> _Cuts:
    offsets = sorted({position % tile_size for position in range(0, stride * tile_size, stride)})
    most_tiles = max(-(-(offset + kernel_size) // tile_size) for offset in offsets)
    rows = np.arange(most_tiles * tile_size).reshape(most_tiles, tile_size)
    taps = np.concatenate([rows - offset for offset in offsets])
    taps = np.where((taps >= 0) & (taps < kernel_size), taps, kernel_size)
    starts = np.arange(0, num_tiles * tile_size - kernel_size + 1, stride)
    starts = starts[: len(starts) // block_size * block_size]
    tiles = starts[:, None] // tile_size + np.arange(most_tiles)
    cuts = np.searchsorted(offsets, starts % tile_size)[:, None] * most_tiles + np.arange(most_tiles)
    return _Cuts(np.minimum(tiles, num_tiles - 1), cuts, taps, len(taps))
