"""The window of characters and colours as an image, and networks for images."""

import dataclasses
from collections.abc import Callable

import chex
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.typing import DTypeLike

from oni_jax.networks import cpu
from oni_jax.networks.convolution import Conv2d, ConvParams, convolve, fastest_conv2d
from oni_jax.networks.cpu.tiles import conv_of_tiles, tile_table
from oni_jax.networks.initializers import Initialization
from oni_jax.networks.precision import add_bias
from oni_jax.networks.tiles import TiledImages, draw
from oni_jax.types import Array

CONV_LAYERS = {  # features, kernel size, stride
    "convnet_simple": ((32, 8, 4), (64, 4, 2), (128, 3, 2)),
    "convnet_impala": ((16, 8, 4), (32, 4, 2)),
}
RESNET_FEATURES = (16, 32, 32)
BLOCKS_PER_STAGE = 2
MIN_IMAGES_PER_TABLE = 256  # making a table for fewer takes longer than it saves


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """Draws the window of characters and colours."""

    tiles: np.ndarray  # [256 * num_colors, 6, 6, 3], in the type to compute in
    num_colors: int

    def __call__(self, characters: Array, colors: Array) -> TiledImages:
        """Returns images of characters, colors [N, R, C] uint8."""
        chex.assert_equal_shape([characters, colors])
        return TiledImages(characters.astype(jnp.int32) * self.num_colors + colors, self.tiles)


def make_window(glyph_table: np.ndarray, subtract_mean: float, scale: float, dtype: DTypeLike = np.float32) -> Window:
    """Makes a window of pixels (x - subtract_mean) / scale.

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
        """Computes the first layer's look-up table; kernel [K, K, 3, F]."""
        return tile_table(tiles, kernel, CONV_LAYERS[self.subtype][0][2])

    @nn.compact
    def __call__(self, images: Array | TiledImages) -> Array:
        """[N, H, W, 3] -> [N, F]."""
        layers, channels = [], 3
        for i, (features, size, stride) in enumerate(CONV_LAYERS[self.subtype]):
            params = ConvParams(features, (size, size), self.initialization, name=f"conv_{i}")(channels)
            layers.append((*params, stride))
            channels = features

        def network(x: Array, conv2d: Conv2d, first: int = 0) -> Array:
            for kernel, bias, stride in layers[first:]:
                x = self.activation(add_bias(conv2d(x, kernel, stride), bias))
            return x.reshape(x.shape[0], -1)

        if not isinstance(images, TiledImages):
            return convolve(network, images)
        (kernel, bias, stride), (_, _, next_stride), *_ = layers
        table = self.get_variable("tables", "conv_0")  # precomputed, or None
        if table is None and cpu.is_used() and len(images.codes) >= MIN_IMAGES_PER_TABLE:
            table = self.first_layer_table(kernel, images.tiles)
        if table is None:
            return network(draw(images), fastest_conv2d())
        blocks = conv_of_tiles(images.codes, table, kernel.shape[0], stride, images.tiles.shape[1], next_stride)

        def from_first_bias(x: Array, conv2d: Conv2d) -> Array:
            return network(self.activation(add_bias(x, bias).astype(images.tiles.dtype)), conv2d, 1)

        return convolve(from_first_bias, blocks)


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

        def network(x: Array, conv2d: Conv2d) -> Array:
            def conv(x: Array, stage: int, i: int) -> Array:
                kernel, bias = layers[stage, i]
                return add_bias(conv2d(x, kernel, padding=1), bias)

            for stage in range(len(RESNET_FEATURES)):
                x = conv(x, stage, 0)
                x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
                for i in range(1, 1 + 2 * BLOCKS_PER_STAGE, 2):
                    x += conv(self.activation(conv(self.activation(x), stage, i)), stage, i + 1)
            return self.activation(x).reshape(x.shape[0], -1)

        if not isinstance(images, TiledImages):
            return convolve(network, images)
        return convolve(lambda codes, conv2d: network(draw(TiledImages(codes, images.tiles)), conv2d), images.codes)
