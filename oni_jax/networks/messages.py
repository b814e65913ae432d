"""Convolutional networks over a message's bytes, after Zhang, Zhao & LeCun (2015, arXiv:1509.01626)."""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from oni_jax.networks import cpu
from oni_jax.networks.convolution import Conv2d, ConvParams, conv1d, convolve
from oni_jax.networks.cpu.characters import conv_of_characters
from oni_jax.networks.initializers import FAN_IN_UNIFORM, ORTHOGONAL, Initialization
from oni_jax.networks.precision import Dense, add_bias
from oni_jax.types import Array

MESSAGE_SIZE = 256  # bytes of a message as networks see it, zero padded; NLE's
NUM_CHARACTERS = 256
PADDING = 0  # this character's embedding is and stays zero
POOL_SIZE = 3


class MessageArchitecture(NamedTuple):
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


class Sequences(NamedTuple):
    """Sequences of which only the beginnings are kept: every position beyond has the same features."""

    start: Array  # [N, K, F]
    beyond: Array  # [F]; at positions K, K+1, ... length-1
    length: int

    def first(self, count: int) -> Array:
        """Returns the first `count` positions, [N, count, F]."""
        missing = max(0, count - self.start.shape[1])
        beyond = jnp.broadcast_to(self.beyond, (self.start.shape[0], missing, self.beyond.shape[0]))
        return jnp.concatenate([self.start[:, :count], beyond], axis=1) if missing else self.start[:, :count]


class MessageNetwork(nn.Module):
    """Embedding, 1-D convolutions with max-pooling, dense layers; ReLU throughout.

    A message's padding is optional: without it the output is the same, at less cost.
    """

    model: str  # a key of ARCHITECTURES
    dense_init: Initialization = ORTHOGONAL
    dtype: np.dtype = np.dtype(np.float32)

    @nn.compact
    def __call__(self, messages: Array) -> Array:
        """[N, M] uint8, M >= 1 -> [N, D]."""
        chex.assert_rank(messages, 2)
        architecture = ARCHITECTURES[self.model]
        features = architecture.embedding_dim
        embedding = self.param("embedding", _embedding_init, (NUM_CHARACTERS, features))
        layers = []
        for i, size in enumerate(architecture.kernel_sizes):
            layers.append(ConvParams(architecture.features, (size,), FAN_IN_UNIFORM, name=f"conv_{i}")(features))
            features = architecture.features

        table = embedding.at[PADDING].set(0.0)
        kernel, bias = layers[0]
        embed_and_convolve = conv_of_characters(table.astype(self.dtype), kernel) if cpu.is_used() else None

        def embed(characters: Array) -> Array:
            return table[characters].astype(self.dtype)  # this order sums the gradient in float32

        def network(messages: Array, conv2d: Conv2d) -> Array:
            first = embed_and_convolve or (lambda characters: conv1d(embed(characters), kernel, conv2d))
            sequences = _first_layer(messages.astype(jnp.int32), first, kernel.shape[0], bias, architecture.length)
            sequences = _max_pool(sequences) if architecture.pooled[0] else sequences
            for (layer_kernel, layer_bias), pooled in zip(layers[1:], architecture.pooled[1:], strict=True):
                sequences = _convolve(sequences, layer_kernel, layer_bias, conv2d)
                sequences = _max_pool(sequences) if pooled else sequences
            return sequences.first(sequences.length).reshape(messages.shape[0], -1)

        x = convolve(network, messages[:, : architecture.length])
        for i, size in enumerate(architecture.hidden_sizes):
            x = nn.relu(Dense(size, self.dense_init, name=f"dense_{i}")(x))
        return x


def _first_layer(
    messages: Array, embed_and_convolve: Callable[[Array], Array], kernel_size: int, bias: Array, length: int
) -> Sequences:
    """Embeds and convolves messages [N, L] int32, padding optional; its embedding is 0."""
    length = length - kernel_size + 1
    count = min(messages.shape[1], length)
    missing = max(0, count + kernel_size - 1 - messages.shape[1])
    characters = jnp.pad(messages, ((0, 0), (0, missing)), constant_values=PADDING)[:, : count + kernel_size - 1]
    x = embed_and_convolve(characters)
    return Sequences(nn.relu(add_bias(x, bias)), nn.relu(bias).astype(x.dtype), length)


def _convolve(sequences: Sequences, kernel: Array, bias: Array, conv2d: Conv2d) -> Sequences:
    """Convolves without padding, and applies ReLU."""
    size = kernel.shape[0]
    length = sequences.length - size + 1
    count = min(sequences.start.shape[1], length)
    start = nn.relu(add_bias(conv1d(sequences.first(count + size - 1), kernel, conv2d), bias))
    beyond = nn.relu(add_bias(sequences.beyond @ kernel.sum(axis=0).astype(sequences.beyond.dtype), bias))
    return Sequences(start, beyond, length)


def _max_pool(sequences: Sequences) -> Sequences:
    """Pools windows of POOL_SIZE that do not overlap; the remainder at the end is dropped."""
    length = sequences.length // POOL_SIZE
    count = min(-(-sequences.start.shape[1] // POOL_SIZE), length)
    windows = sequences.first(count * POOL_SIZE)
    start = windows.reshape(windows.shape[0], count, POOL_SIZE, windows.shape[2]).max(axis=2)
    return Sequences(start, sequences.beyond, length)
