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


def is_like(saved: Mapping[str, np.ndarray], like: Any) -> bool:
    """Returns whether `from_arrays` can restore a state of this structure from what was saved."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(like)
    shapes = {jax.tree_util.keystr(path): _saved_shape(x) for path, x in leaves}
    return all(name in saved and saved[name].shape == shape for name, shape in shapes.items())


def _saved_shape(leaf: Any) -> tuple[int, ...]:
    return jax.eval_shape(jax.random.key_data, leaf).shape if _is_key(leaf) else leaf.shape


def from_arrays(saved: Mapping[str, np.ndarray], like: State) -> State:
    """Returns the state that `to_arrays` was given; `like`: its structure, of arrays or their shapes."""

    def read(path: tuple[Any, ...], leaf: Any) -> jax.Array:
        array = jnp.array(saved[jax.tree_util.keystr(path)])
        return jax.random.wrap_key_data(array, impl=PRNG) if _is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(read, like)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
