"""Networks computed in chunks of rows."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from oni_jax.types import Array

CHUNK_SIZE = 32  # images whose intermediate arrays stay in a CPU's caches


def map_in_chunks(fn: Callable[[Array], Array], inputs: Array) -> Array:
    """Computes fn(inputs) for an fn that treats the rows of [N, ...] independently, CHUNK_SIZE at a time.

    The backward pass recomputes the chunks: intermediate arrays neither leave the caches nor have to be kept,
    which costs no time and saves much memory.
    """
    count = inputs.shape[0]
    if count < 2:
        return fn(inputs)
    size = min(CHUNK_SIZE, count // 2)
    whole = count - count % size
    outputs = jax.lax.map(jax.checkpoint(fn, prevent_cse=False), inputs[:whole].reshape(-1, size, *inputs.shape[1:]))
    outputs = outputs.reshape(whole, *outputs.shape[2:])
    return outputs if whole == count else jnp.concatenate([outputs, fn(inputs[whole:])])
