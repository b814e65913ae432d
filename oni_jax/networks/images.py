"""The window of characters and colours as an image, and networks for it."""

from collections.abc import Callable

import chex
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from oni_jax.networks.convolution import Conv
from oni_jax.types import Array

DrawFn = Callable[[Array, Array], Array]

CONV_LAYERS = {  # features, kernel size, stride
    "convnet_simple": ((32, 8, 4), (64, 4, 2), (128, 3, 2)),
    "convnet_impala": ((16, 8, 4), (32, 4, 2)),
}
RESNET_FEATURES = (16, 32, 32)
BLOCKS_PER_STAGE = 2


def make_draw_fn(glyph_table: np.ndarray) -> DrawFn:
    """draw(characters [N, R, C] uint8, colours [N, R, C]) -> [N, 6R, 6C, 3] uint8, by one gather.

    glyph_table [256, 16, 6, 6, 3] uint8: the pixels of every character in every colour.
    """
    chex.assert_shape(glyph_table, (256, 16, None, None, 3))
    num_colors, height, width, channels = glyph_table.shape[1:]
    tiles = glyph_table.reshape(-1, height, width, channels)

    def draw(characters: Array, colors: Array) -> Array:
        chex.assert_equal_shape([characters, colors])
        count, rows, columns = characters.shape
        pixels = jnp.asarray(tiles)[characters.astype(jnp.int32) * num_colors + colors]
        return pixels.swapaxes(2, 3).reshape(count, rows * height, columns * width, channels)

    return draw


class ConvStack(nn.Module):
    """Convolutions without padding, an activation after each."""

    subtype: str
    activation: Callable[[Array], Array]
    kernel_init: Callable

    @nn.compact
    def __call__(self, images: Array) -> Array:
        """[N, H, W, C] -> [N, H', W', F]."""
        for i, (features, size, stride) in enumerate(CONV_LAYERS[self.subtype]):
            conv = Conv(features, (size, size), stride, kernel_init=self.kernel_init, name=f"conv_{i}")
            images = self.activation(conv(images))
        return images


class ResNet(nn.Module):
    """The residual network of IMPALA (Espeholt et al. 2018, arXiv:1802.01561)."""

    activation: Callable[[Array], Array]
    kernel_init: Callable

    def _conv(self, images: Array, features: int, name: str) -> Array:
        return Conv(features, (3, 3), padding=1, kernel_init=self.kernel_init, name=name)(images)

    @nn.compact
    def __call__(self, images: Array) -> Array:
        """[N, H, W, C] -> [N, H', W', F]."""
        for stage, features in enumerate(RESNET_FEATURES):
            images = self._conv(images, features, f"stage_{stage}")
            images = nn.max_pool(images, (3, 3), (2, 2), ((1, 1), (1, 1)))  # pyright: ignore[reportArgumentType]
            for block in range(BLOCKS_PER_STAGE):
                residual = self._conv(self.activation(images), features, f"stage_{stage}_block_{block}_conv_0")
                images += self._conv(self.activation(residual), features, f"stage_{stage}_block_{block}_conv_1")
        return self.activation(images)
