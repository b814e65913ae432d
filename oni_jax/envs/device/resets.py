"""Functions applied to the few rows of a batch that need them, such as a reset to the environments that ended."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import chex
import jax
import jax.numpy as jnp

from oni_jax.envs.device.base import DeviceEnv
from oni_jax.envs.device.episodes import Episode, begin_episode
from oni_jax.envs.device.shown import Shown, show

Rows = TypeVar("Rows")  # a pytree of arrays [N, ...]
ROWS_PER_CHUNK_ROW = 64  # the default


def default_chunk(num_rows: int) -> int:
    """Returns a chunk that one step's ended episodes mostly fit in, where they end at different times."""
    return max(1, num_rows // ROWS_PER_CHUNK_ROW)


def update_rows(function: Callable[[Rows], Rows], rows: Rows, chosen: jax.Array, chunk: int) -> Rows:
    """Replaces each chosen row by a function of it, `chunk` rows at a time, and leaves the others as they are.

    The result is exactly that of applying the function to all rows and keeping the chosen ones. The work is in
    proportion to the chosen rows, rounded up to whole chunks: none where none is chosen.

    Args:
      function: of one row; vmapped here.
      rows: leaves [N, ...].
      chosen: [N] bool.
      chunk: rows that are computed together, from 1 to N.
    """
    return _for_chunks(lambda rows, indices: jax.vmap(function)(_take(rows, indices)), rows, chosen, chunk)


def map_rows(
    function: Callable[[Rows], jax.Array], rows: Rows, chosen: jax.Array, chunk: int, default: jax.Array
) -> jax.Array:
    """Returns function(rows) for the chosen rows, computed `chunk` rows at a time, and `default` for the others.

    Args:
      function: of `chunk` rows, leaves [chunk, ...].
      rows: leaves [N, ...].
      chosen: [N] bool.
      chunk: from 1 to N.
      default: [N, ...].
    """
    return _for_chunks(lambda _, indices: function(_take(rows, indices)), default, chosen, chunk)


def _take(rows: Rows, indices: jax.Array) -> Rows:
    return jax.tree.map(lambda x: x.at[indices].get(mode="clip"), rows)


def _for_chunks(compute: Callable[[Rows, jax.Array], Rows], rows: Rows, chosen: jax.Array, chunk: int) -> Rows:
    """Replaces the chosen rows by compute(rows, indices [chunk]); indices beyond the last chosen row are N."""
    chex.assert_rank(chosen, 1)
    chex.assert_type(chosen, bool)
    chex.assert_tree_has_only_ndarrays(rows)
    chex.assert_equal_shape_prefix([chosen, *jax.tree.leaves(rows)], 1)
    counts = jnp.cumsum(chosen, dtype=jnp.int32)

    def update_chunk(carry: tuple[Rows, jax.Array]) -> tuple[Rows, jax.Array]:
        rows, done = carry
        # The j-th chosen row is the first one at which the count is j; beyond the last one: N, dropped below.
        indices = jnp.searchsorted(counts, done + jnp.arange(1, chunk + 1, dtype=jnp.int32))
        new = compute(rows, indices)
        return jax.tree.map(lambda x, new: x.at[indices].set(new, mode="drop"), rows, new), done + chunk

    rows, _ = jax.lax.while_loop(lambda carry: carry[1] < counts[-1], update_chunk, (rows, jnp.int32(0)))
    return rows


def reset_ended(env: DeviceEnv, episodes: Episode, shown: Shown, ended: jax.Array, chunk: int) -> tuple[Episode, Shown]:
    """Starts the next episode of each environment whose episode has ended, and shows its first state.

    Each draws from a separate key.

    Args:
      env: of one environment.
      episodes: leaves [N, ...].
      shown: of `episodes`; leaves [N, ...].
      ended: [N] bool.
      chunk: see `update_rows`.
    """
    names: Sequence[str] = tuple(shown.observations)

    def begin(row: tuple[Episode, Shown]) -> tuple[Episode, Shown]:
        episode = begin_episode(env, row[0].key, row[0].number + 1)
        return episode, show(env, names, episode.state)

    return update_rows(begin, (episodes, shown), ended, chunk)
