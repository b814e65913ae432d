"""The convolution of embedded characters by look-up."""

from collections.abc import Callable

from oni_jax.types import Array


def conv_of_characters(embedding: Array, kernel: Array) -> Callable[[Array], Array]:
    """conv1d(embedding[characters], kernel) as a function of characters [N, L] int32 -> [N, L', F].

    Each character's share at each place of the kernel is looked up: half of a gradient step's products go.
    embedding [G, D], kernel [K, D, F].
    """
    size = kernel.shape[0]
    shares = embedding @ kernel.astype(embedding.dtype)  # [K, G, F]

    def convolve(characters: Array) -> Array:
        count = characters.shape[1] - size + 1
        return sum(shares[k][characters[:, k : k + count]] for k in range(size))

    return convolve
