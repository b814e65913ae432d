"""Convolutions, and the choice of their implementation: XLA's, or on a CPU that of `networks.cpu`."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import chex
import jax
from flax import linen as nn

from oni_jax.networks import cpu
from oni_jax.networks.cpu import matrix_products
from oni_jax.networks.cpu.chunks import map_in_chunks
from oni_jax.networks.initializers import Initialization
from oni_jax.types import Array


class Conv2d(Protocol):
    """Cross-correlation, in the images' type. images [N, H, W, C], kernel [KH, KW, C, O] -> [N, H', W', O]."""

    def __call__(self, images: Array, kernel: Array, stride: int = 1, padding: int = 0) -> Array: ...


def conv2d(images: Array, kernel: Array, stride: int = 1, padding: int = 0) -> Array:
    """XLA's `Conv2d`."""
    chex.assert_rank([images, kernel], 4)
    padded = [(padding, padding)] * 2
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        images, kernel.astype(images.dtype), (stride, stride), padded, dimension_numbers=layout
    )


def conv1d(sequences: Array, kernel: Array, conv2d: Conv2d) -> Array:
    """Cross-correlation without padding. sequences [N, L, C], kernel [K, C, O] -> [N, L', O]."""
    chex.assert_rank([sequences, kernel], 3)
    return conv2d(sequences[:, :, None], kernel[:, None])[:, :, 0]


def fastest_conv2d() -> Conv2d:
    """Returns the fastest `Conv2d` of JAX's backend."""
    return matrix_products.conv2d if cpu.is_used() else conv2d


def convolve(network: Callable[[Array, Conv2d], Array], inputs: Array) -> Array:
    """Computes network(inputs, fastest_conv2d()) of a network that treats rows of inputs [N, ...] independently."""

    def run(rows: Array) -> Array:
        return network(rows, fastest_conv2d())

    return map_in_chunks(run, inputs) if cpu.is_used() else run(inputs)


class ConvParams(nn.Module):
    """Parameters of a convolution: `kernel` [*kernel_size, C, features] and `bias` [features]."""

    features: int
    kernel_size: Sequence[int]
    initialization: Initialization

    @nn.compact
    def __call__(self, num_channels: int) -> tuple[Array, Array]:
        kernel = self.param("kernel", self.initialization.kernel, (*self.kernel_size, num_channels, self.features))
        fan_in = math.prod(self.kernel_size) * num_channels
        return kernel, self.param("bias", self.initialization.bias(fan_in), (self.features,))
