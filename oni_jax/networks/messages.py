"""Convolutional networks over a message's bytes, after Zhang, Zhao & LeCun (2015, arXiv:1509.01626)."""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from oni_jax.networks.convolution import ConvParams, conv1d, map_in_chunks
from oni_jax.networks.initializers import uniform
from oni_jax.networks.precision import Dense, add_bias
from oni_jax.types import Array

NUM_CHARACTERS = 256
PADDING = 0  # this character's embedding is and stays zero
POOL_SIZE = 3


class MessageArchitecture(NamedTuple):
    """Sizes of a message network."""

    length: int  # characters read
    embedding_dim: int
    features: int
    kernel_sizes: tuple[int, ...]
    pooled: tuple[bool, ...]  # max-pooling after each convolution
    hidden_sizes: tuple[int, ...]


ARCHITECTURES = {
    "lt_cnn": MessageArchitecture(256, 32, 64, (7, 7, 3, 3, 3, 3), (True, True, False, False, False, True), (128,)),
    "lt_cnn_small": MessageArchitecture(128, 16, 32, (7, 7, 3), (True, True, True), (32, 32)),
}


def _embedding_init(key: Array, shape: tuple[int, ...], dtype: type = float) -> Array:
    return nn.initializers.normal(1.0)(key, shape, dtype).at[PADDING].set(0.0)


class MessageNetwork(nn.Module):
    """Embedding, 1-D convolutions with max-pooling, dense layers; ReLU throughout."""

    model: str  # a key of ARCHITECTURES
    dense_kernel_init: Callable = nn.initializers.orthogonal()
    dtype: np.dtype = np.dtype(np.float32)

    @nn.compact
    def __call__(self, messages: Array) -> Array:
        """[N, M] uint8 -> [N, D]."""
        chex.assert_rank(messages, 2)
        architecture = ARCHITECTURES[self.model]
        features = architecture.embedding_dim
        embedding = self.param("embedding", _embedding_init, (NUM_CHARACTERS, features))
        layers = []
        for i, size in enumerate(architecture.kernel_sizes):
            init = uniform(size * features)
            layers.append(ConvParams(architecture.features, (size,), init, init, name=f"conv_{i}")(features))
            features = architecture.features

        def convolve(messages: Array) -> Array:
            x = embedding.at[PADDING].set(0.0)[messages.astype(jnp.int32)].astype(self.dtype)
            for (kernel, bias), pooled in zip(layers, architecture.pooled, strict=True):
                x = nn.relu(add_bias(conv1d(x, kernel), bias))
                x = _max_pool(x) if pooled else x
            return x.reshape(x.shape[0], -1)

        x = map_in_chunks(convolve, messages[:, : architecture.length])
        for i, size in enumerate(architecture.hidden_sizes):
            x = nn.relu(Dense(size, self.dense_kernel_init, name=f"dense_{i}")(x))
        return x


def _max_pool(x: Array) -> Array:
    """Over windows of POOL_SIZE that do not overlap; what is left over at the end is dropped."""
    count, length, features = x.shape
    whole = length // POOL_SIZE
    return x[:, : whole * POOL_SIZE].reshape(count, whole, POOL_SIZE, features).max(axis=2)
