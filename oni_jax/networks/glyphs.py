"""The encoder of glyphs, statistics and message, also of the ranking reward models."""

import dataclasses
from collections.abc import Mapping

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from oni_jax.networks.convolution import Conv2d, ConvParams, convolve
from oni_jax.networks.encoder import Encoder
from oni_jax.networks.initializers import ORTHOGONAL, Initialization
from oni_jax.networks.messages import MessageNetwork
from oni_jax.networks.precision import PRECISIONS, Dense, add_bias
from oni_jax.networks.registry import torchbeast_observations
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import Array, EnvSpec

NUM_GLYPHS = 5976  # NLE's MAX_GLYPH
CONV_FEATURES = 16  # features of all convolutions over glyphs but the last
LAST_CONV_FEATURES = 8


def crop_glyphs(glyphs: Array, hero_xy: Array, size: int) -> Array:
    """Crops the size x size glyphs around the hero; glyph 0 outside the map.

    glyphs [N, 21, 79], hero_xy [N, 2] unscaled column and row -> [N, size, size]:
    rows y - size/2 .. y + size/2 - 1, columns alike.
    """
    chex.assert_shape(hero_xy, (glyphs.shape[0], 2))
    half = size // 2
    padded = jnp.pad(glyphs, ((0, 0), (half, size - half), (half, size - half)))
    # ONI: the published crop is centred on the scaled coordinates (x / 79, y / 21), always the map's corner.
    xy = hero_xy.astype(jnp.int32)
    return jax.vmap(lambda image, x, y: jax.lax.dynamic_slice(image, (y, x), (size, size)))(padded, xy[:, 0], xy[:, 1])


class GlyphConvs(nn.Module):
    """Glyphs, embedded, through 3x3 convolutions, ELU after each, flattened."""

    num_layers: int
    stride: int
    initialization: Initialization
    dtype: np.dtype

    @nn.compact
    def __call__(self, glyphs: Array, embedding: Array) -> Array:
        """glyphs [N, H, W] int32, embedding [G, D] -> [N, F]."""
        layers, channels = [], embedding.shape[1]
        for i in range(self.num_layers):
            features = CONV_FEATURES if i < self.num_layers - 1 else LAST_CONV_FEATURES
            layers.append(ConvParams(features, (3, 3), self.initialization, name=f"conv_{i}")(channels))
            channels = features

        def network(glyphs: Array, conv2d: Conv2d) -> Array:
            x = embedding[glyphs].astype(self.dtype)
            for kernel, bias in layers:
                x = nn.elu(add_bias(conv2d(x, kernel, self.stride, padding=1), bias))
            return x.reshape(x.shape[0], -1)

        return convolve(network, glyphs)


class TorchbeastEncoder(Encoder):
    """Encoder of statistics, glyphs around the hero, the whole map and message: optional, concatenated in this order.

    Reads `vector_obs` [N, D], `hero_xy` [N, 2], `glyphs` [N, 21, 79], `message` [N, M] as far as its parts need them.
    """

    def _dense(self, features: int, name: str) -> Dense:
        return Dense(features, self.initialization, name=name)

    def _convs(self, stride: int, name: str) -> GlyphConvs:
        return GlyphConvs(self.network.torchbeast.num_layers, stride, self.initialization, self.dtype, name=name)

    @nn.compact
    def __call__(self, observations: Mapping[str, Array]) -> Array:
        """Observations [N, ...] -> [N, hidden_dim]."""
        network, parts = self.network.torchbeast, []
        width = network.embedding_dim
        if network.use_blstats:
            x = nn.relu(self._dense(width, "blstats_0")(observations["vector_obs"].astype(self.dtype)))
            parts.append(nn.relu(self._dense(width, "blstats_1")(x)))
        if network.use_crop or network.use_glyphs:
            shape = (NUM_GLYPHS, width)
            embedding = self.param("glyph_embedding", nn.initializers.normal(1.0), shape)
            glyphs = observations["glyphs"].astype(jnp.int32)
            if network.use_crop:
                crop = crop_glyphs(glyphs, observations["hero_xy"], network.crop_dim)
                parts.append(self._convs(1, "crop")(crop, embedding))
            if network.use_glyphs:
                parts.append(self._convs(2, "glyphs")(glyphs, embedding))
        if network.msg_model != "none":
            read = MessageNetwork(network.msg_model, self.initialization, self.dtype, name="message")
            parts.append(read(observations["message"]))
        x = nn.relu(self._dense(network.hidden_dim // 2, "dense_0")(jnp.concatenate(parts, axis=-1)))
        return self._dense(network.hidden_dim, "dense_1")(x)


class RankingNetwork(nn.Module):
    """A scalar reward: an encoder, ReLU, one dense unit. In true float32, also where JAX would round."""

    encoder: TorchbeastEncoder
    reads: tuple[str, ...] = ("message",)  # names of the observations

    @nn.compact
    def __call__(self, observations: Mapping[str, Array]) -> Array:
        """Observations [N, ...] -> [N]. Messages' padding is optional where nothing else is read."""
        with jax.default_matmul_precision(PRECISIONS["float32"].float32_products):
            x = nn.relu(self.encoder(observations))
            return Dense(1, ORTHOGONAL, name="reward")(x)[:, 0]


def make_ranking_network(network: NetworkConfig) -> RankingNetwork:
    """Makes the ranking reward model of the settings. Raises UserError where it would read nothing."""
    network = dataclasses.replace(network, policy_initialization="orthogonal", precision="float32")
    return RankingNetwork(make_glyph_encoder(network), reads=tuple(torchbeast_observations(network)))


def make_glyph_encoder(network: NetworkConfig, spec: EnvSpec | None = None) -> TorchbeastEncoder:
    """Makes the encoder of the settings. Raises UserError where it would read nothing."""
    if network.torchbeast.use_crop and not network.torchbeast.use_blstats:
        raise UserError("--use_crop needs --use_blstats: turn it on too.")
    if not torchbeast_observations(network):
        raise UserError("nle_torchbeast_encoder sees nothing: use --use_blstats, --use_glyphs or a message model.")
    return TorchbeastEncoder(network)
