"""States on a device as named arrays, from which they are restored bit for bit."""

from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.device.episodes import PRNG

State = TypeVar("State")  # a pytree of arrays and keys


def to_arrays(state: Any) -> dict[str, np.ndarray]:
    """Returns all leaves, by their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(jax.random.key_data(x) if _is_key(x) else x) for path, x in leaves}


def from_arrays(saved: Mapping[str, np.ndarray], like: State) -> State:
    """Returns the state that `to_arrays` was given; `like`: its structure, of arrays or their shapes."""

    def read(path: tuple[Any, ...], leaf: Any) -> jax.Array:
        array = jnp.array(saved[jax.tree_util.keystr(path)])
        return jax.random.wrap_key_data(array, impl=PRNG) if _is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(read, like)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
