"""The window of characters and colours as an image, and networks for images."""

import dataclasses
from collections.abc import Callable

import chex
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.typing import DTypeLike

from oni_jax.networks.convolution import ConvParams, conv2d, conv2d_of_blocks, map_in_chunks, use_matrix_products
from oni_jax.networks.initializers import Initialization
from oni_jax.networks.precision import add_bias
from oni_jax.networks.tiles import TiledImages, conv_of_tiles, draw, tile_table
from oni_jax.types import Array

CONV_LAYERS = {  # features, kernel size, stride
    "convnet_simple": ((32, 8, 4), (64, 4, 2), (128, 3, 2)),
    "convnet_impala": ((16, 8, 4), (32, 4, 2)),
}
RESNET_FEATURES = (16, 32, 32)
BLOCKS_PER_STAGE = 2
MIN_IMAGES_PER_TABLE = 256  # with fewer, making the table takes longer than it saves


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """Draws the window of characters and colours."""

    tiles: np.ndarray  # [256 * num_colors, 6, 6, 3], in the type to compute in
    num_colors: int

    def __call__(self, characters: Array, colors: Array) -> TiledImages:
        """characters, colors [N, R, C] uint8."""
        chex.assert_equal_shape([characters, colors])
        return TiledImages(characters.astype(jnp.int32) * self.num_colors + colors, self.tiles)


def make_window(glyph_table: np.ndarray, subtract_mean: float, scale: float, dtype: DTypeLike = np.float32) -> Window:
    """For images of pixels (x - subtract_mean) / scale.

    glyph_table [256, 16, 6, 6, 3] uint8: the pixels of every character in every colour.
    """
    chex.assert_shape(glyph_table, (256, 16, 6, 6, 3))
    tiles = glyph_table.reshape(-1, *glyph_table.shape[2:]).astype(np.float32)
    tiles = (tiles - np.float32(subtract_mean)) / np.float32(scale)
    return Window(tiles.astype(dtype), glyph_table.shape[1])


class ConvStack(nn.Module):
    """Convolutions without padding, an activation after each, flattened."""

    subtype: str  # a key of CONV_LAYERS
    activation: Callable[[Array], Array]
    initialization: Initialization

    def first_layer_table(self, kernel: Array, tiles: Array) -> Array:
        """What the first layer's look-up needs; kernel [K, K, 3, F]."""
        return tile_table(tiles, kernel, CONV_LAYERS[self.subtype][0][2])

    @nn.compact
    def __call__(self, images: Array | TiledImages) -> Array:
        """[N, H, W, 3] -> [N, F]."""
        layers, channels = [], 3
        for i, (features, size, stride) in enumerate(CONV_LAYERS[self.subtype]):
            params = ConvParams(features, (size, size), self.initialization, name=f"conv_{i}")(channels)
            layers.append((*params, stride))
            channels = features
        (first, first_bias, first_stride), (second, second_bias, second_stride), *others = layers

        def finish(x: Array) -> Array:
            """From the second convolution, before its bias, on."""
            x = self.activation(add_bias(x, second_bias))
            for kernel, bias, stride in others:
                x = self.activation(add_bias(conv2d(x, kernel, stride), bias))
            return x.reshape(x.shape[0], -1)

        def convolve(pixels: Array) -> Array:
            x = self.activation(add_bias(conv2d(pixels, first, first_stride), first_bias))
            return finish(conv2d(x, second, second_stride))

        if not isinstance(images, TiledImages):
            return map_in_chunks(convolve, images)
        codes, tiles = images
        table = self.get_variable("tables", "conv_0")  # made beforehand, or not
        if table is None and use_matrix_products() and codes.shape[0] >= MIN_IMAGES_PER_TABLE:
            table = self.first_layer_table(first, tiles)
        if table is None:
            return convolve(draw(images))

        def convolve_blocks(x: Array) -> Array:
            x = self.activation((x + first_bias).astype(tiles.dtype))
            return finish(conv2d_of_blocks(x, second, second_stride))

        blocks = conv_of_tiles(codes, table, first.shape[0], first_stride, tiles.shape[1], second_stride)
        return map_in_chunks(convolve_blocks, blocks)


class ResNet(nn.Module):
    """The residual network of IMPALA (Espeholt et al. 2018, arXiv:1802.01561), flattened."""

    activation: Callable[[Array], Array]
    initialization: Initialization

    @nn.compact
    def __call__(self, images: Array | TiledImages) -> Array:
        """[N, H, W, 3] -> [N, F]."""
        layers, channels = {}, 3
        for stage, features in enumerate(RESNET_FEATURES):
            for i in range(1 + 2 * BLOCKS_PER_STAGE):
                params = ConvParams(features, (3, 3), self.initialization, name=f"stage_{stage}_conv_{i}")
                layers[stage, i] = params(channels)
                channels = features

        def conv(x: Array, stage: int, i: int) -> Array:
            kernel, bias = layers[stage, i]
            return add_bias(conv2d(x, kernel, padding=1), bias)

        def run(x: Array) -> Array:
            for stage in range(len(RESNET_FEATURES)):
                x = conv(x, stage, 0)
                x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))  # pyright: ignore[reportArgumentType]
                for i in range(1, 1 + 2 * BLOCKS_PER_STAGE, 2):
                    x += conv(self.activation(conv(self.activation(x), stage, i)), stage, i + 1)
            return self.activation(x).reshape(x.shape[0], -1)

        if not isinstance(images, TiledImages):
            return map_in_chunks(run, images)
        return map_in_chunks(lambda codes: run(draw(TiledImages(codes, images.tiles))), images.codes)
