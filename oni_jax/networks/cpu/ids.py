"""Dense layer over embedded ids by look-up."""

from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.networks import cpu
from oni_jax.types import Array

MIN_ROWS = 4  # per id; of fewer, the tables cost more than they save


def is_faster(num_rows: int, num_ids: int, dtype: np.dtype) -> bool:
    """Returns whether a look-up takes less time than embedding and product, with the same values within rounding."""
    return num_rows >= MIN_ROWS * num_ids and dtype == np.float32


def embedded_product(parts: Sequence[tuple[Array, Array]], kernel: Array, dtype: np.dtype) -> Array:
    """Computes sum(embedding[ids]).reshape(N, -1) @ kernel in a type, by look-up where that is faster.

    Args:
        parts: ids [N, K] int32 and their embedding [G, D], which are added.
        kernel: [K * D, F].
    """
    if cpu.is_used() and all(is_faster(len(ids), len(embedding), dtype) for ids, embedding in parts):
        return sum((dense_of_ids(ids, embedding, kernel) for ids, embedding in parts), jnp.zeros((), dtype))
    features = sum((embedding[ids] for ids, embedding in parts), jnp.zeros(()))
    return features.reshape(len(features), -1).astype(dtype) @ kernel.astype(dtype)


def dense_of_ids(ids: Array, embedding: Array, kernel: Array) -> Array:
    """Computes embedding[ids].reshape(N, -1) @ kernel; ids [N, K] int32, embedding [G, D], kernel [K * D, F] -> [N, F].

    The product of each id with each position's part of the kernel is computed once, and looked up. One position after
    the other, since XLA's gathers and scatters from a single table are six times as fast as from all at once.
    """
    chex.assert_rank([ids, embedding, kernel], 2)
    parts = kernel.reshape(ids.shape[1], embedding.shape[1], -1)
    tables = jnp.einsum("gd,kdf->kgf", embedding, parts)

    def add(total: Array, position: tuple[Array, Array]) -> tuple[Array, None]:
        table, own = position
        return total + table.at[own].get(mode="promise_in_bounds"), None

    return jax.lax.scan(add, jnp.zeros((len(ids), tables.shape[2])), (tables, ids.T))[0]
