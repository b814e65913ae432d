"""64-bit codes of short arrays. Integer arithmetic only: equal on every device."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

_SEED = 0x0E1
_WORD_BYTES = 4


def hash64(key: jax.Array) -> jax.Array:
    """Returns a hash of bytes [M] uint8, as [2] uint32.

    Each of the two halves is a sum over the words of MurmurHash3's finaliser, with other constants for each word, mixed
    once more. A million distinct keys collide with a probability of 3e-8 (birthday bound of 64 bits).
    """
    chex.assert_rank(key, 1)
    chex.assert_type(key, jnp.uint8)
    padded = jnp.pad(key, (0, -len(key) % _WORD_BYTES)).reshape(-1, _WORD_BYTES).astype(jnp.uint32)
    words = jnp.sum(padded << jnp.arange(0, 32, 8, dtype=jnp.uint32), axis=1, dtype=jnp.uint32)  # [W]
    # PCG64's raw output is the same in every version of NumPy
    constants = np.random.PCG64(_SEED).random_raw(2 * len(words)).astype(np.uint32).reshape(2, -1)
    return mix(jnp.sum(mix(words + constants), axis=1, dtype=jnp.uint32))


def mix(x: jax.Array) -> jax.Array:
    """MurmurHash3's 32-bit finaliser, a bijection."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
