"""Encoders of a policy: observations {name: [N, ...]} -> [N, D]."""

from collections.abc import Mapping

import jax.numpy as jnp
from flax import linen as nn

from oni_jax.networks import cpu
from oni_jax.networks.activations import ACTIVATIONS
from oni_jax.networks.encoder import Encoder
from oni_jax.networks.images import CONV_LAYERS, ConvStack, ResNet, Window, make_window
from oni_jax.networks.initializers import FAN_IN_UNIFORM, POLICY_INITIALIZATIONS
from oni_jax.networks.precision import PRECISIONS, Dense
from oni_jax.networks.tiles import TiledImages
from oni_jax.ops.glyph_table import glyph_table
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import Array, EnvSpec, PyTree

HEAD_SIZE = 128  # layers over the statistics and the message


class RgbCropEncoder(Encoder):
    """Encoder of an image, statistics and a message.

    Reads `vector_obs` [N, D], `message` [N, M] uint8 and an image: drawn from `chars` and `colors` [N, 12, 12],
    or, without `window`, given as `obs` [N, 3, 72, 72] uint8.
    """

    image_stack: ConvStack | ResNet  # images [N, H, W, 3], drawn or in tiles -> [N, F]; a dense layer follows
    window: Window | None

    def _images(self, observations: Mapping[str, Array]) -> Array | TiledImages:
        if self.window is not None:
            return self.window(observations["chars"], observations["colors"])
        pixels = jnp.moveaxis(observations["obs"], 1, -1).astype(jnp.float32)
        return ((pixels - self.network.rgbcrop.subtract_mean) / self.network.rgbcrop.scale).astype(self.dtype)

    def tables(self, params: PyTree) -> PyTree | None:
        """Precomputes tables, once for each version of the parameters; None where there are none."""
        if self.window is None or not isinstance(self.image_stack, ConvStack) or not cpu.is_used():
            return None
        kernel = params["image_stack"]["conv_0"]["kernel"]
        return {"image_stack": {"conv_0": self.image_stack.first_layer_table(kernel, self.window.tiles)}}

    @nn.compact
    def __call__(self, observations: Mapping[str, Array]) -> Array:
        """-> [N, hidden_size + 128 + D + 128]."""
        image = self.image_stack(self._images(observations))
        image = self.activation(Dense(self.network.hidden_size, self.image_stack.initialization, name="image")(image))
        statistics = observations["vector_obs"].astype(self.dtype)
        vector = self.dense(self.dense(statistics, HEAD_SIZE, "vector_0"), HEAD_SIZE, "vector_1")
        message = self.scaled(observations["message"])
        message = self.dense(self.dense(message, HEAD_SIZE, "message_0"), HEAD_SIZE, "message_1")
        return jnp.concatenate([image, vector, statistics, message], axis=-1)


def make_rgbcrop_encoder(network: NetworkConfig, spec: EnvSpec) -> RgbCropEncoder:
    """Makes the encoder of the settings. Raises UserError: `encoder_subtype` is not of `encoder_type`.

    The image is drawn unless the environment shows `obs`, as the recorded ones do.
    """
    image = network.rgbcrop
    activation = ACTIVATIONS[network.nonlinearity]
    is_conv = image.subtype in CONV_LAYERS
    if is_conv != (image.type == "conv"):
        raise UserError(
            f"--encoder_subtype={image.subtype} is not of --encoder_type={image.type}: "
            f"use --encoder_type={'conv' if is_conv else 'resnet'}."
        )
    # As published, --policy_initialization is of all layers but the convolutional image encoder's.
    if is_conv:
        stack = ConvStack(image.subtype, activation, FAN_IN_UNIFORM)
    else:
        stack = ResNet(activation, POLICY_INITIALIZATIONS[network.policy_initialization])
    if "obs" in spec.observations:
        return RgbCropEncoder(network, stack, None)
    dtype = PRECISIONS[network.precision].dtype
    window = make_window(glyph_table(), image.subtract_mean, image.scale, dtype)
    return RgbCropEncoder(network, stack, window)
