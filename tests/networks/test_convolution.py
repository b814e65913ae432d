"""Convolutions as matrix products give XLA's values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.networks import convolution, cpu
from oni_jax.networks.cpu import chunks, matrix_products

CASES = [  # height, width, kernel height, kernel width, stride, padding
    (20, 20, 8, 8, 4, 0),
    (17, 18, 4, 4, 2, 0),
    (7, 7, 3, 3, 2, 0),
    (5, 9, 3, 3, 1, 1),
    (7, 6, 3, 3, 2, 1),
    (30, 1, 7, 1, 1, 0),
]


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@pytest.mark.parametrize("case", CASES)
def test_matrix_products_equal_xla_convolution(case):
    height, width, kernel_height, kernel_width, stride, padding = case
    images, kernel = normal(0, 3, height, width, 5), normal(1, kernel_height, kernel_width, 5, 4)

    def run(conv2d: convolution.Conv2d):
        output, pullback = jax.vjp(lambda x, k: conv2d(x, k, stride, padding), images, kernel)
        return output, pullback(jnp.sin(output))

    (products, product_gradients), (native, native_gradients) = run(matrix_products.conv2d), run(convolution.conv2d)
    np.testing.assert_allclose(products, native, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(product_gradients, native_gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_blocks_are_the_layout_of_a_strided_convolution():
    images, kernel = normal(0, 2, 6, 8, 3), normal(1, 4, 4, 3, 5)
    blocks = images.reshape(2, 3, 2, 4, 2, 3).swapaxes(2, 3).reshape(2, 3, 4, 4, 3)
    expected = convolution.conv2d(images, kernel, stride=2)
    np.testing.assert_allclose(matrix_products.conv2d(blocks, kernel, 2), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 31, 64, 101])
def test_chunks_change_no_value_and_no_gradient(count):
    inputs, weights = normal(0, count, 3), normal(1, 3, 2)

    def run(map_rows):
        output, pullback = jax.vjp(lambda w: map_rows(lambda x: jnp.tanh(x @ w), inputs), weights)
        return output, pullback(jnp.cos(output))[0]

    for chunked, whole in zip(run(chunks.map_in_chunks), run(lambda network, x: network(x)), strict=True):
        np.testing.assert_allclose(chunked, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("used", [True, False])
def test_networks_are_given_the_convolution_that_suits_the_backend(used, monkeypatch):
    monkeypatch.setattr(cpu, "used", used)
    given = []
    convolution.convolve(lambda x, conv2d: given.append(conv2d) or x, normal(0, 1, 3))
    assert given == [matrix_products.conv2d if used else convolution.conv2d]
