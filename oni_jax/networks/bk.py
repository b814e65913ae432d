"""The trunk of BK's networks (arXiv 2407.03964), of MiniGrid's small images and of large ones."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from oni_jax.networks.convolution import Conv2d, ConvParams, convolve
from oni_jax.networks.encoder import Encoder
from oni_jax.networks.initializers import FAN_IN_UNIFORM
from oni_jax.networks.precision import Dense, add_bias
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import Array, ArraySpec, EnvSpec

IMAGE = "image"  # the observation that it reads, [H, W, 3] uint8
MINIGRID_SCALE = (10.0, 5.0, 3.0)  # largest type, colour and state of a cell
PIXEL_SCALE = 255.0
SMALL_SIDE = 16  # below it, images are MiniGrid's
SMALL_LAYERS = ((32, 3, 1, 1), (64, 3, 1, 1), (64, 3, 1, 1))  # features, kernel size, stride, padding
LARGE_LAYERS = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))


class BkEncoder(Encoder):
    """Encoder of images [H, W, 3] uint8 by three convolutions, with ReLU, and a dense layer, without.

    Initial weights are PyTorch's default, whatever the policy's.
    """

    is_small: bool

    def is_numeric(self, array: ArraySpec) -> bool:
        return True

    @nn.compact
    def __call__(self, observations: Mapping[str, Array]) -> Array:
        """Observations {"image": [N, H, W, 3]} -> [N, hidden_size]; float32 ones are normalised already."""
        images = observations[IMAGE]
        if images.dtype == jnp.uint8:
            images = images / (np.array(MINIGRID_SCALE, np.float32) if self.is_small else np.float32(PIXEL_SCALE))
        images = images.astype(self.dtype)
        layers, channels = [], images.shape[-1]
        for i, (features, size, stride, padding) in enumerate(SMALL_LAYERS if self.is_small else LARGE_LAYERS):
            params = ConvParams(features, (size, size), FAN_IN_UNIFORM, name=f"conv_{i}")
            layers.append((*params(channels), stride, padding))
            channels = features

        def network(x: Array, conv2d: Conv2d) -> Array:
            for kernel, bias, stride, padding in layers:
                x = nn.relu(add_bias(conv2d(x, kernel, stride, padding), bias))
            return x.reshape(x.shape[0], -1)

        return Dense(self.network.hidden_size, FAN_IN_UNIFORM, name="dense")(convolve(network, images))


def make_bk_encoder(network: NetworkConfig, spec: EnvSpec) -> BkEncoder:
    """Makes BK's encoder. Raises UserError: the environment's image has another shape or type, or is too small."""
    shape, dtype = spec.observations[IMAGE][:2]
    smallest = min(shape[:2], default=0)
    if len(shape) != 3 or shape[2] != 3 or dtype != "uint8" or SMALL_SIDE <= smallest < 36:
        raise UserError(
            f"--encoder_custom bk_encoder: the image is {list(shape)} {dtype}; it reads [H, W, 3] uint8, with sides "
            f"below {SMALL_SIDE} (MiniGrid's) or from 36 on"
        )
    return BkEncoder(network, smallest < SMALL_SIDE)
