"""The agent's view of a room, and the caption's key. Source: MiniGrid's egocentric partial view."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.babyai.cells import DOOR, EMPTY, UNSEEN, VACATED, WALL, colour_of, state_of, type_of
from oni_jax.envs.babyai.levels import VIEW_SIZE
from oni_jax.envs.babyai.rules import DIRECTIONS, NOTHING, State

AGENT = (VIEW_SIZE // 2, VIEW_SIZE - 1)  # its cell in the view, from where it looks towards smaller y
# Cells of the view that are looked along for a wall, from the agent on: forward, left, right. [length, 2] each
_FORWARD = np.array([(AGENT[0], y) for y in reversed(range(AGENT[1]))])
_LEFT = np.array([(x, AGENT[1]) for x in reversed(range(AGENT[0]))])
_RIGHT = np.array([(x, AGENT[1]) for x in range(AGENT[0] + 1, VIEW_SIZE)])


def _offsets() -> np.ndarray:
    """Returns [4, V, V, 2] int32: positions of a view's cells relative to the agent, by its direction."""
    x, y = np.meshgrid(np.arange(VIEW_SIZE), np.arange(VIEW_SIZE), indexing="ij")
    forward, sideways = (AGENT[1] - y)[..., None], (x - AGENT[0])[..., None]
    rights = DIRECTIONS[(np.arange(4) + 1) % 4]
    return np.stack([forward * ahead + sideways * right for ahead, right in zip(DIRECTIONS, rights)]).astype(np.int32)


_OFFSETS = _offsets()


def seen_positions(state: State) -> jax.Array:
    """Returns the positions [V, V, 2] of the view's cells, some of them outside the room."""
    return state.position + jnp.asarray(_OFFSETS)[state.direction]


def view_of(state: State) -> jax.Array:
    """Returns the cells that the agent sees, [V, V] uint8 by column and row. What it carries stands at its cell.

    A room without inner walls hides nothing: unseen are the cells outside of it.
    """
    size = state.grid.shape[0]
    x, y = jnp.moveaxis(seen_positions(state), -1, 0)
    inside = (x >= 0) & (x < size) & (y >= 0) & (y < size)
    cells = state.grid.reshape(-1).at[x * size + y].get(mode="clip")
    cells = jnp.where(cells >= VACATED, jnp.uint8(EMPTY), cells)
    carried = jnp.where(state.carried == NOTHING, jnp.uint8(EMPTY), state.carried)
    is_agent = np.zeros((VIEW_SIZE, VIEW_SIZE), bool)
    is_agent[AGENT] = True
    return jnp.where(is_agent, carried, jnp.where(inside, cells, jnp.uint8(UNSEEN)))


def image_of(view: jax.Array) -> jax.Array:
    """Returns MiniGrid's image [V, V, 3] uint8 of a view: type, colour, state."""
    chex.assert_shape(view, (VIEW_SIZE, VIEW_SIZE))
    return jnp.stack([type_of(view), colour_of(view), state_of(view)], axis=-1)


def caption_key(view: jax.Array) -> jax.Array:
    """Returns [V * V + 3] uint8: the cells of doors and objects, else 0; steps to a wall forward, left, right, else 0.

    Views with equal captions have equal keys.
    """
    chex.assert_shape(view, (VIEW_SIZE, VIEW_SIZE))
    objects = jnp.where(type_of(view) >= DOOR, view, jnp.uint8(0))
    walls = jnp.stack([_steps_to_wall(view[line[:, 0], line[:, 1]]) for line in (_FORWARD, _LEFT, _RIGHT)])
    return jnp.concatenate([objects.reshape(-1), walls])


def _steps_to_wall(line: jax.Array) -> jax.Array:
    """Returns the steps along cells [L] to the first that is neither unseen nor empty, if it is a wall; else 0."""
    stops = (line != UNSEEN) & (line != EMPTY)
    first = jnp.argmax(stops)
    return jnp.where(line[first] == WALL, first + 1, 0).astype(jnp.uint8)
