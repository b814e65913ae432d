"""Convolution of tiled images by look-up against convolution of their pixels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.networks import convolution, tiles
from oni_jax.networks.cpu.tiles import conv_of_tiles, tile_table


def tiled_images(rows: int, columns: int, size: int) -> tiles.TiledImages:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 7, (3, rows, columns)).astype(np.int32)
    return tiles.TiledImages(jnp.asarray(codes), jnp.asarray(rng.normal(size=(7, size, size, 3)), jnp.float32))


def test_draw_puts_each_tile_in_its_place():
    images = tiled_images(2, 4, 5)
    pixels = tiles.draw(images)
    assert pixels.shape == (3, 10, 20, 3)
    for row in range(2):
        for column in range(4):
            tile = pixels[1, 5 * row : 5 * row + 5, 5 * column : 5 * column + 5]
            np.testing.assert_array_equal(tile, images.tiles[images.codes[1, row, column]])


@pytest.mark.parametrize(
    ("rows", "columns", "tile_size", "kernel_size", "stride", "block_size"),
    [(12, 12, 6, 8, 4, 2), (12, 12, 6, 8, 4, 1), (5, 4, 6, 8, 4, 2), (4, 6, 5, 3, 2, 1), (3, 3, 4, 4, 4, 3)],
)
def test_look_up_equals_convolution_of_pixels(rows, columns, tile_size, kernel_size, stride, block_size):
    images = tiled_images(rows, columns, tile_size)
    kernel = jnp.asarray(np.random.default_rng(1).normal(size=(kernel_size, kernel_size, 3, 4)), jnp.float32)

    def by_pixels(kernel: jax.Array) -> jax.Array:
        output = convolution.conv2d(tiles.draw(images), kernel, stride)
        height, width = (side // block_size for side in output.shape[1:3])
        blocks = output[:, : height * block_size, : width * block_size]
        blocks = blocks.reshape(3, height, block_size, width, block_size, 4).swapaxes(2, 3)
        return blocks.reshape(3, height, width, block_size**2, 4)

    def by_look_up(kernel: jax.Array) -> jax.Array:
        table = tile_table(images.tiles, kernel, stride)
        return conv_of_tiles(images.codes, table, kernel_size, stride, tile_size, block_size)

    expected, pull_expected = jax.vjp(by_pixels, kernel)
    actual, pull_actual = jax.vjp(by_look_up, kernel)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    direction = jnp.sin(expected)
    np.testing.assert_allclose(pull_actual(direction)[0], pull_expected(direction)[0], rtol=1e-4, atol=1e-3)
