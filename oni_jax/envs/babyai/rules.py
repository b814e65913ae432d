"""MiniGrid's rules in a room without doors: a state and what an action makes of it.

BabyAI's "go to" looks at positions that it noted when the episode began or an object was last dropped, not at the
objects. So an object that was taken away since still counts where it stood: its cell stays in the grid, marked
VACATED, and reads as empty for everything else. Nothing appears but by a drop, so the grid holds all there is to note.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.babyai.cells import BOX, EMPTY, VACATED, is_object, type_of
from oni_jax.envs.babyai.levels import EFFECTS, Action, Family, Level

DIRECTIONS = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)], np.int32)  # right, down, left, up
NOTHING = 0  # carried
_NO_EFFECT, _LEFT, _RIGHT, _FORWARD, _BUMP, _PICK_UP, _PUT_DOWN, _OPEN = range(len(EFFECTS))


class State(NamedTuple):
    """One environment's. Positions are (x, y), as in MiniGrid."""

    grid: jax.Array  # [S, S] uint8 cells, by x and y
    position: jax.Array  # [2] int32; of the agent
    direction: jax.Array  # [] int32; index into DIRECTIONS
    carried: jax.Array  # [] uint8; an object's cell, or NOTHING
    targets: jax.Array  # [G] uint8 cells, in the order asked for
    num_alike: jax.Array  # [G] int32; objects that looked like each target when the episode began
    is_named_later: jax.Array  # [] bool; the mission names the first target after the second
    num_reached: jax.Array  # [] int32; targets reached or picked up, of G
    num_steps: jax.Array  # [] int32
    event: jax.Array  # [3] uint8; the last action's effect, the object that it was done to, and the one right ahead


def step(level: Level, state: State, action: jax.Array) -> State:
    chex.assert_shape(state.grid, (level.size, level.size))
    moved = act(state, action)
    if level.family is Family.PICK_UP:
        reached = (action == Action.PICKUP) & (state.carried == NOTHING) & (moved.carried == state.targets[0])
        return moved._replace(num_reached=state.num_reached + reached)
    noted = moved.grid[tuple(front_of(moved))] & ~np.uint8(VACATED)
    num_reached = state.num_reached
    for _ in level.targets:  # one look may reach all
        last = jnp.minimum(num_reached, len(level.targets) - 1)
        num_reached += (num_reached < len(level.targets)) & (noted == state.targets[last])
    return moved._replace(num_reached=num_reached)


def act(state: State, action: jax.Array) -> State:
    """Moves the agent and changes the room."""
    chex.assert_rank(action, 0)
    front = front_of(state)
    cell = state.grid[tuple(front)]
    seen = jnp.where(cell >= VACATED, jnp.uint8(EMPTY), cell)
    drops = action == Action.DROP

    picked = (action == Action.PICKUP) & is_object(seen) & (state.carried == NOTHING)
    opened = (action == Action.TOGGLE) & (type_of(seen) == BOX)  # it vanishes: there is nothing in it
    dropped = drops & (seen == EMPTY) & (state.carried != NOTHING)

    left_behind = jnp.where(picked | opened, cell | np.uint8(VACATED), cell)
    changed = jnp.where(drops, jnp.where(dropped, state.carried, seen), left_behind)
    noted = jnp.where(drops & (state.grid >= VACATED), jnp.uint8(EMPTY), state.grid)
    columns = np.arange(state.grid.shape[0])
    at_front = (columns == front[0])[:, None] & (columns == front[1])
    turn = (action == Action.RIGHT).astype(jnp.int32) - (action == Action.LEFT)
    moved = state._replace(
        # A comparison with every cell, not `.at[front].set`: XLA makes a loop of scatters on a CPU
        grid=jnp.where(at_front, changed, noted),
        position=jnp.where((action == Action.FORWARD) & (seen == EMPTY), front, state.position),
        direction=(state.direction + turn) % 4,
        carried=jnp.where(picked, seen, jnp.where(dropped, jnp.uint8(NOTHING), state.carried)),
        num_steps=state.num_steps + 1,
    )
    bumped = (action == Action.FORWARD) & (seen != EMPTY)
    effects = {
        _LEFT: action == Action.LEFT,
        _RIGHT: action == Action.RIGHT,
        _FORWARD: (action == Action.FORWARD) & (seen == EMPTY),
        _BUMP: bumped,
        _PICK_UP: picked,
        _PUT_DOWN: dropped,
        _OPEN: opened,
    }
    effect = sum(np.uint8(number) * happens for number, happens in effects.items())
    done_to = jnp.where(dropped, state.carried, jnp.where(bumped | picked | opened, seen, jnp.uint8(NOTHING)))
    ahead = moved.grid[tuple(front_of(moved))]
    shows_ahead = is_object(ahead) & (effects[_LEFT] | effects[_RIGHT] | effects[_FORWARD])
    event = jnp.stack([effect, done_to, jnp.where(shows_ahead, ahead, jnp.uint8(NOTHING))])
    return moved._replace(event=event.astype(jnp.uint8))


def front_of(state: State) -> jax.Array:
    """Returns the position [2] that the agent faces; always inside the grid."""
    return state.position + jnp.asarray(DIRECTIONS)[state.direction]


def rewards(level: Level) -> np.ndarray:
    """Returns [max_steps + 1] float32, the reward of success by the number of steps."""
    return (1 - 0.9 * (np.arange(level.max_steps + 1) / level.max_steps)).astype(np.float32)
