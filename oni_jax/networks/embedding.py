"""Dense layers over embedded ids, and the choice of their implementation: products, or on a CPU look-ups."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from oni_jax.networks import cpu
from oni_jax.networks.cpu.ids import dense_of_ids, is_faster
from oni_jax.types import Array


def embedded_product(parts: Sequence[tuple[Array, Array]], kernel: Array, dtype: np.dtype) -> Array:
    """Computes sum(embedding[ids]).reshape(N, -1) @ kernel in a type -> [N, F].

    Args:
        parts: ids [N, K] int32 and their embedding [G, D], which are added.
        kernel: [K * D, F].
    """
    if cpu.is_used() and all(is_faster(len(ids), len(embedding), dtype) for ids, embedding in parts):
        return sum((dense_of_ids(ids, embedding, kernel) for ids, embedding in parts), jnp.zeros((), dtype))
    features = sum((embedding[ids] for ids, embedding in parts), jnp.zeros(()))
    return features.reshape(len(features), -1).astype(dtype) @ kernel.astype(dtype)
