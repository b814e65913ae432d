"""Convolution of embedded characters by look-up."""

from collections.abc import Callable

from oni_jax.types import Array


def conv_of_characters(embedding: Array, kernel: Array) -> Callable[[Array], Array]:
    """Returns conv1d(embedding[characters], kernel) as a function of characters [N, L] int32 -> [N, L', F].

    Each character's product with each tap of the kernel is looked up, which saves half of a gradient step's products.
    embedding [G, D], kernel [K, D, F].
    """
    size = kernel.shape[0]
    products = embedding @ kernel.astype(embedding.dtype)  # [K, G, F]

    def convolve(characters: Array) -> Array:
        count = characters.shape[1] - size + 1
        return sum(products[k][characters[:, k : k + count]] for k in range(size))

    return convolve
