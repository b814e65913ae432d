"""Convolutions, and the one place that decides how they are computed: by XLA, or on a CPU as `networks.cpu` does."""

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
    """XLA's own `Conv2d`."""
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


def fitting_conv2d() -> Conv2d:
    """The fastest `Conv2d` of where JAX computes."""
    return matrix_products.conv2d if cpu.is_used() else conv2d


def convolve(network: Callable[[Array, Conv2d], Array], inputs: Array) -> Array:
    """network(inputs, conv2d) with the fitting `conv2d`, of a network that treats the rows of inputs [N, ...] apart."""

    def run(rows: Array) -> Array:
        return network(rows, fitting_conv2d())

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
