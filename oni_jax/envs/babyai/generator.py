"""Random levels, distributed as BabyAI's: rooms drawn until every object can be reached."""

from collections.abc import Callable
from typing import TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.babyai.cells import BALL, BOX, COLOURS, EMPTY, KEY, WALL, is_object
from oni_jax.envs.babyai.levels import Family, Level
from oni_jax.envs.babyai.rules import DIRECTIONS, NOTHING, State

Drawn = TypeVar("Drawn")
_NEAR = np.array([(0, 0), *DIRECTIONS])  # [5, 2]; objects are not put down there, seen from where the agent is
_DISTRACTORS = np.array([type_ | colour << 3 for type_ in (KEY, BALL, BOX) for colour in range(len(COLOURS))], np.uint8)


def generate(level: Level, key: jax.Array) -> State:
    """Draws the start of an episode."""
    return draw_until(lambda state: all_reachable(state.grid, state.position), lambda key: _draw(level, key), key)


def draw_until(accept: Callable[[Drawn], jax.Array], draw: Callable[[jax.Array], Drawn], key: jax.Array) -> Drawn:
    """Returns the first of independent draws that is accepted."""

    def draw_again(carry: tuple[jax.Array, Drawn, jax.Array]) -> tuple[jax.Array, Drawn, jax.Array]:
        key, subkey = jax.random.split(carry[0])
        drawn = draw(subkey)
        return key, drawn, accept(drawn)

    unknown = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(draw, key))
    _, drawn, _ = jax.lax.while_loop(lambda carry: ~carry[2], draw_again, (key, unknown, jnp.bool(False)))
    return drawn


def _draw(level: Level, key: jax.Array) -> State:
    """Draws a room, in which an object may be out of reach."""
    target_key, distractor_key, object_key, agent_key, order_key = jax.random.split(key, 5)
    room = np.pad(np.full((level.size - 2, level.size - 2), EMPTY, np.uint8), 1, constant_values=WALL)
    targets = draw_targets(level, target_key)
    distractors = jax.random.choice(distractor_key, jnp.asarray(_DISTRACTORS), (level.num_distractors,))
    objects = jnp.concatenate([targets, distractors])

    if level.family is Family.GO_TO_LOCAL:
        position, direction = put_down_agent(agent_key, jnp.asarray(room))
        grid = put_down_objects(object_key, jnp.asarray(room), objects, position)
    else:
        grid = put_down_objects(object_key, jnp.asarray(room), objects, jnp.full(2, level.size // 2, jnp.int32))
        position, direction = put_down_agent(agent_key, grid)
    return State(
        grid=grid,
        position=position,
        direction=direction,
        carried=jnp.uint8(NOTHING),
        targets=targets,
        num_alike=jnp.sum(grid == targets[:, None, None], axis=(1, 2), dtype=jnp.int32),
        is_named_later=jax.random.bernoulli(order_key) if level.family is Family.GO_TO else jnp.bool(False),
        num_reached=jnp.int32(0),
        num_steps=jnp.int32(0),
        event=jnp.zeros(3, jnp.uint8),
    )


def draw_targets(level: Level, key: jax.Array) -> jax.Array:
    """Draws [G] uint8 cells; where there is no choice, nothing is computed."""
    return jnp.stack(
        [
            jax.random.choice(jax.random.fold_in(key, i), jnp.array(cells, jnp.uint8))
            if cells[1:]
            else np.uint8(*cells)
            for i, cells in enumerate(level.targets)
        ]
    )


def put_down_agent(key: jax.Array, grid: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draws a position [2] and a direction [] int32: on an empty cell [S, S], not facing an object."""

    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, y, direction = jax.random.randint(key, (3,), jnp.array([1, 1, 0]), jnp.array([*grid.shape, 5]) - 1)
        return jnp.stack([x, y]), direction

    def is_free(agent: tuple[jax.Array, jax.Array]) -> jax.Array:
        position, direction = agent
        faced = grid[tuple(position + jnp.asarray(DIRECTIONS)[direction])]
        return (grid[tuple(position)] == EMPTY) & ~is_object(faced)

    return draw_until(is_free, draw, key)


def put_down_objects(key: jax.Array, room: jax.Array, objects: jax.Array, position: jax.Array) -> jax.Array:
    """Puts objects [K] uint8 on distinct cells of an empty room [S, S], none within a step of a position [2]."""
    chex.assert_rank([room, objects, position], [2, 1, 1])
    inner = room.shape[0] - 2
    num_cells = inner**2
    near = position - 1 + _NEAR  # [5, 2]; counted from the room's first inner cell
    is_inside = jnp.all((near >= 0) & (near < inner), axis=1)
    excluded = jnp.where(is_inside, near[:, 0] * inner + near[:, 1], num_cells)
    cells = draw_distinct(key, num_cells, excluded, len(objects))
    return room.at[1 + cells // inner, 1 + cells % inner].set(objects)


def draw_distinct(key: jax.Array, num_cells: int, excluded: jax.Array, num_drawn: int) -> jax.Array:
    """Draws distinct numbers [K] int32, one after another, each uniform in [0, num_cells) without those taken.

    Args:
      key: key of the draws.
      num_cells: end of the range.
      excluded: [E] int32, distinct numbers that are taken from the start; those from num_cells on have no effect.
      num_drawn: K, at most as many as are free.
    """
    unused = 2 * num_cells  # follows all others when sorted, and shifts no rank
    taken = jnp.full(len(excluded) + num_drawn, unused).at[: len(excluded)].set(excluded)
    taken = jnp.sort(jnp.where(taken < num_cells, taken, unused))
    num_free = num_cells - jnp.sum(excluded < num_cells) - jnp.arange(num_drawn)
    ranks = jax.random.randint(key, (num_drawn,), 0, num_free)
    slots = jnp.arange(len(taken))

    def take(taken: jax.Array, rank: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Takes the number with this rank among the free ones; `taken` stays sorted."""
        number = rank + jnp.sum(taken - slots <= rank)
        slot = jnp.sum(taken < number)
        later = jnp.where(slots == slot, number, jnp.roll(taken, 1))
        return jnp.where(slots < slot, taken, later), number

    return jax.lax.scan(take, taken, ranks)[1]


def all_reachable(grid: jax.Array, position: jax.Array) -> jax.Array:
    """Returns True if every object of a grid [S, S] can be walked up to from a position [2], none being moved."""
    columns = jnp.arange(grid.shape[0])
    start = (columns == position[0])[:, None] & (columns == position[1])
    is_free, objects = grid == EMPTY, is_object(grid)

    def grow(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reached, _ = carry
        # The outer cells are walls, so nothing crosses from one side to the other
        free = reached & is_free
        grown = reached
        for axis in (0, 1):
            grown = grown | jnp.roll(free, 1, axis) | jnp.roll(free, -1, axis)
        return grown, jnp.any(grown != reached)

    def goes_on(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        reached, has_grown = carry
        return has_grown & jnp.any(objects & ~reached)

    reached, _ = jax.lax.while_loop(goes_on, grow, (start, jnp.bool(True)))
    return ~jnp.any(objects & ~reached)
