"""The random numbers of a step, by what they decide: uniform on [0, 1)."""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.device.hashing import mix

_PLAYER, _CHUNKS, _OBJECTS = range(3)
_ODD = np.uint32(0x9E3779B9)  # 2^32 by the golden ratio


class ObjectDraws(NamedTuple):
    """Numbers of one object, each [] float32."""

    moves: jax.Array  # True if a cow moves, a zombie chases; the axis on which a skeleton retreats
    axis: jax.Array  # True if a creature comes nearer along the longer axis
    direction: jax.Array  # direction of wandering
    shoots: jax.Array
    follows: jax.Array
    wanders: jax.Array


class Draws(Protocol):
    """A pytree of what the numbers are made from."""

    def of_player(self) -> jax.Array:
        """Returns [] float32."""
        ...

    def of_object(self, cell: jax.Array) -> ObjectDraws: ...

    def of_chunks(self, num_kinds: int, num_chunks: int) -> jax.Array:
        """Returns [num_kinds, num_chunks, 2] float32: whether something is born or vanishes, and which."""
        ...


class KeyDraws(NamedTuple):
    """Draws from a step's key, by a hash of it and of what they are for.

    A counter through MurmurHash3's finaliser twice, with the key's words in between: several times cheaper than
    Threefry, of which JAX makes a loop on CPUs, and each object needs other numbers.
    """

    words: jax.Array  # [2] uint32

    def of_player(self) -> jax.Array:
        return self._uniform(_PLAYER, jnp.uint32(0))

    def of_object(self, cell: jax.Array) -> ObjectDraws:
        first = cell.astype(jnp.uint32) * len(ObjectDraws._fields)
        return ObjectDraws(*(self._uniform(_OBJECTS, first + i) for i in range(len(ObjectDraws._fields))))

    def of_chunks(self, num_kinds: int, num_chunks: int) -> jax.Array:
        count = num_kinds * num_chunks * 2
        return self._uniform(_CHUNKS, jnp.arange(count, dtype=jnp.uint32)).reshape(num_kinds, num_chunks, 2)

    def _uniform(self, use: int, counter: jax.Array) -> jax.Array:
        bits = mix(mix((counter * 4 + use + 1) * _ODD ^ self.words[0]) + self.words[1])
        return (bits >> 8).astype(jnp.float32) * 2.0**-24


def draws_of(key: jax.Array) -> KeyDraws:
    return KeyDraws(jax.random.key_data(key)[:2])
