"""Convolutions as matrix products."""

import itertools
from collections.abc import Iterator

import chex
import jax
import jax.numpy as jnp

from oni_jax.types import Array


def conv2d(images: Array, kernel: Array, stride: int = 1, padding: int = 0) -> Array:
    """Computes `convolution.conv2d`. Images may be blocks [N, H / stride, W / stride, stride**2, C], a layout it has to
    make anyway; the kernel's sides are then multiples of the stride, and the padding is 0.
    """
    chex.assert_rank([images, kernel], [{4, 5}, 4])
    kernel = kernel.astype(images.dtype)
    if images.ndim == 5:
        return _conv_of_cells(images.reshape(*images.shape[:3], -1), _kernel_to_depth(kernel, stride))
    images = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    if kernel.shape[0] % stride or kernel.shape[1] % stride:
        return _conv_of_patches(images, kernel, stride)
    height, width = _output_shape(images, kernel, stride)
    used = images[:, : (height - 1) * stride + kernel.shape[0], : (width - 1) * stride + kernel.shape[1]]
    return _conv_of_cells(_space_to_depth(used, stride), _kernel_to_depth(kernel, stride))


def _output_shape(images: Array, kernel: Array, stride: int) -> tuple[int, int]:
    return (images.shape[1] - kernel.shape[0]) // stride + 1, (images.shape[2] - kernel.shape[1]) // stride + 1


def _space_to_depth(images: Array, size: int) -> Array:
    """[N, H, W, C] -> [N, H / size, W / size, size * size * C]."""
    count, height, width, channels = images.shape
    cells = images.reshape(count, height // size, size, width // size, size, channels).swapaxes(2, 3)
    return cells.reshape(count, height // size, width // size, size * size * channels)


def _kernel_to_depth(kernel: Array, size: int) -> Array:
    """Returns the kernel that on cells, with stride 1, equals `kernel` on pixels with stride `size`."""
    height, width, channels, outputs = kernel.shape
    cells = kernel.reshape(height // size, size, width // size, size, channels, outputs).swapaxes(1, 2)
    return cells.reshape(height // size, width // size, size * size * channels, outputs)


def _taps(kernel: Array) -> Iterator[tuple[int, int]]:
    return itertools.product(range(kernel.shape[0]), range(kernel.shape[1]))


def _as_matrix(kernel: Array) -> Array:
    """[KH, KW, C, O] -> [C, KH * KW * O]."""
    return jnp.moveaxis(kernel, 2, 0).reshape(kernel.shape[2], -1)


@jax.custom_vjp
def _conv_of_cells(images: Array, kernel: Array) -> Array:
    """Stride 1: one matrix product computes every tap at every cell, then shifted slices are summed.

    The backward pass concatenates shifted copies of the gradient, and is two matrix products as well.
    """
    height, width = _output_shape(images, kernel, 1)
    taps = (images.reshape(-1, images.shape[3]) @ _as_matrix(kernel)).reshape(*images.shape[:3], -1, kernel.shape[3])
    return sum(taps[:, i : i + height, j : j + width, tap] for tap, (i, j) in enumerate(_taps(kernel)))


def _conv_of_cells_forward(images: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _conv_of_cells(images, kernel), (images, kernel)


def _conv_of_cells_backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    images, kernel = residuals
    rows, columns, channels, outputs = kernel.shape
    shifted = [jnp.pad(gradient, ((0, 0), (i, rows - 1 - i), (j, columns - 1 - j), (0, 0))) for i, j in _taps(kernel)]
    gradients = jnp.stack(shifted, axis=3).reshape(-1, rows * columns * outputs)
    kernel_gradient = (images.reshape(-1, channels).T @ gradients).reshape(channels, rows, columns, outputs)
    return (gradients @ _as_matrix(kernel).T).reshape(images.shape), jnp.moveaxis(kernel_gradient, 0, 2)


_conv_of_cells.defvjp(_conv_of_cells_forward, _conv_of_cells_backward)


def _conv_of_patches(images: Array, kernel: Array, stride: int) -> Array:
    """Any stride: one matrix product with the patches as rows."""
    height, width = _output_shape(images, kernel, stride)
    slices = [
        images[:, i : i + stride * (height - 1) + 1 : stride, j : j + stride * (width - 1) + 1 : stride]
        for i, j in _taps(kernel)
    ]
    patches = jnp.stack(slices, axis=3).reshape(-1, kernel.shape[0] * kernel.shape[1] * kernel.shape[2])
    return (patches @ kernel.reshape(-1, kernel.shape[3])).reshape(-1, height, width, kernel.shape[3])
