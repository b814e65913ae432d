"""Networks over messages at the cost of their lengths, by buckets: most fill a fifth of their 256 bytes, or none."""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from oni_jax.networks import cpu
from oni_jax.types import Array

CHUNK_SIZE = 64  # messages of about the same length that a CPU computes together
ACCELERATOR_CHUNK_SIZE = 2048  # at each chunk an accelerator waits for the host, which chooses a branch
# Buckets below the full length, to which chunks are cut; NetHack's messages are up to 80.
LENGTHS: tuple[int, ...] = (48, 80)


def message_lengths(messages: Array) -> Array:
    """Returns the bytes before the padding; [N, M] uint8 -> [N] int32."""
    positions = jnp.arange(1, messages.shape[1] + 1, dtype=jnp.int32)
    return jnp.max(jnp.where(messages != 0, positions, 0), axis=1)


def map_messages(fn: Callable[[Array], Array], messages: Array, used: Array) -> Array:
    """Computes fn(messages), for an fn that treats messages independently and needs no padding (MessageNetwork).

    messages [N, M] uint8, used [N] bool, fn: [C, L] uint8 -> [C, ...] float32. Returns [N, ...]; zeros where not used.
    Messages are sorted by length and computed in chunks, each cut to its bucket; chunks of unused ones cost nothing.
    """
    chex.assert_rank([messages, used], [2, 1])
    messages, used = jnp.asarray(messages), jnp.asarray(used)
    count, length = messages.shape
    size = min(CHUNK_SIZE if cpu.is_used() else ACCELERATOR_CHUNK_SIZE, count)
    order = jnp.argsort(jnp.where(used, message_lengths(messages), -1))
    # Padded to full chunks with a repeated row.
    order = jnp.concatenate([jnp.repeat(order[:1], -count % size), order])
    lengths = [*(cut for cut in LENGTHS if cut < length), length]
    shape = jax.eval_shape(fn, jax.ShapeDtypeStruct((size, lengths[0]), messages.dtype))

    def compute(cut: int) -> Callable[[Array], Array]:
        return lambda chunk: fn(chunk[:, :cut])

    branches = [lambda chunk: jnp.zeros(shape.shape, shape.dtype), *map(compute, lengths)]

    def step(_: None, rows: Array) -> tuple[None, Array]:
        chunk = messages[rows]
        longest = jnp.max(jnp.where(used[rows], message_lengths(chunk), -1))
        branch = jnp.where(longest < 0, 0, 1 + jnp.searchsorted(jnp.array(lengths), longest))
        return None, jax.lax.switch(branch, branches, chunk)

    _, outputs = jax.lax.scan(step, None, order.reshape(-1, size))
    outputs = outputs.reshape(-1, *shape.shape[1:])
    unsorted = jnp.zeros((count, *shape.shape[1:]), shape.dtype).at[order].set(outputs)
    return jnp.where(used.reshape(-1, *(1,) * (unsorted.ndim - 1)), unsorted, 0)


def map_unique_messages(fn: Callable[[Array], Array], messages: Array, ids: Array) -> Array:
    """Computes `map_messages` of all messages, those with equal ids [N] int32 once."""
    count = len(messages)
    unique, first, inverse = jnp.unique(
        ids, size=count, fill_value=jnp.iinfo(jnp.int32).max, return_index=True, return_inverse=True
    )
    outputs = map_messages(fn, messages[first], unique != jnp.iinfo(jnp.int32).max)
    return outputs[inverse.reshape(count)]
