"""Dense layer over embedded ids by look-up."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.types import Array

MIN_ROWS = 4  # per id; of fewer, the tables cost more than they save


def is_faster(num_rows: int, num_ids: int, dtype: np.dtype) -> bool:
    """Returns whether a look-up takes less time than embedding and product, with the same values within rounding."""
    return num_rows >= MIN_ROWS * num_ids and dtype == np.float32


def dense_of_ids(ids: Array, embedding: Array, kernel: Array) -> Array:
    """Computes embedding[ids].reshape(N, -1) @ kernel; ids [N, K] int32, embedding [G, D], kernel [K * D, F] -> [N, F].

    The product of each id with each position's part of the kernel is computed once, and looked up. One position after
    the other, since XLA's gathers and scatters from a single table are six times as fast as from all at once.
    """
    chex.assert_rank([ids, embedding, kernel], 2)
    parts = kernel.reshape(ids.shape[1], embedding.shape[1], -1)
    tables = jnp.einsum("gd,kdf->kgf", embedding, parts)

    def add(total: Array, position: tuple[Array, Array]) -> tuple[Array, None]:
        table, rows = position
        return total + table.at[rows].get(mode="promise_in_bounds"), None

    return jax.lax.scan(add, jnp.zeros((len(ids), tables.shape[2])), (tables, ids.T))[0]
