"""Updates of cows, zombies, skeletons, arrows and plants, one after the other, as in Crafter."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from oni_jax.envs.crafter import things
from oni_jax.envs.crafter.draws import Draws
from oni_jax.envs.crafter.loops import while_any
from oni_jax.envs.crafter.state import (
    BORDER,
    CELL,
    ENTRIES,
    HEALTH,
    KIND,
    MAX_OBJECTS,
    NEVER,
    NUM_CHUNKS,
    STEPS,
    WIDTH,
    State,
    chunk_of,
    index_of,
    is_empty,
    kind_of,
    material_of,
    pack,
)
from oni_jax.envs.crafter.things import ARROW, COW, DOWN, LEFT, PLANT, PLAYER, RIGHT, SIGHT, SKELETON, UP, ZOMBIE

_BITS = 32
_STAYS = -1  # instead of a direction
_COOLDOWN, _RELOAD = 5, 4
_DAMAGE, _DAMAGE_ASLEEP, _ARROW_DAMAGE = 2, 7, 2


class _Scene(NamedTuple):
    """The part of a state that objects change, and what they depend on."""

    cells: jax.Array
    objects: jax.Array
    num_objects: jax.Array
    chunk_entered: jax.Array
    damage: jax.Array  # [] int32; done to the player
    waiting: jax.Array  # [MAX_OBJECTS / 32] uint32; bits of the objects that are yet to be updated
    position: jax.Array
    is_sleeping: jax.Array
    time: jax.Array  # [] int32; of entry, see `State.objects`
    draws: Draws


def update(state: State, draws: Draws, num_old: jax.Array) -> State:
    """Updates the first `num_old` objects, of those near the player, in the order of their birth.

    What is born in a step waits for the next one.
    """
    at = state.objects[:, CELL]
    distance = jnp.abs(at // WIDTH - BORDER - state.position[0]) + jnp.abs(at % WIDTH - BORDER - state.position[1])
    near = (state.objects[:, KIND] > 0) & (distance < SIGHT) & (jnp.arange(MAX_OBJECTS) < num_old)
    shifts = jnp.arange(_BITS, dtype=jnp.uint32)  # as bits, since what is next has to be found cheaply
    scene = _Scene(
        state.cells,
        state.objects,
        state.num_objects,
        state.chunk_entered,
        jnp.int32(0),
        jnp.sum(near.reshape(-1, _BITS).astype(jnp.uint32) << shifts, axis=1, dtype=jnp.uint32),
        state.position,
        state.is_sleeping,
        state.num_steps * ENTRIES + 1,
        draws,
    )
    scene = while_any(lambda scene: (scene.waiting != 0).any(), _update_next, scene)
    health = jnp.maximum(state.inventory[things.HEALTH] - scene.damage, 0)
    return state._replace(
        cells=scene.cells,
        objects=scene.objects,
        num_objects=scene.num_objects,
        chunk_entered=scene.chunk_entered,
        inventory=state.inventory.at[things.HEALTH].set(health),
    )


def _update_next(scene: _Scene) -> _Scene:
    """Updates the first object that waits, if there is one."""
    is_first = (jnp.cumsum(scene.waiting != 0) == 1) & (scene.waiting != 0)
    lowest = jnp.where(is_first, scene.waiting & (~scene.waiting + 1), 0)
    bit = _BITS - 1 - jax.lax.clz(lowest).astype(jnp.int32)
    words = jnp.arange(len(lowest), dtype=jnp.int32)
    index = jnp.min(jnp.where(is_first, words * _BITS + bit, MAX_OBJECTS))
    return _update(scene._replace(waiting=scene.waiting ^ lowest), index)


def _update(scene: _Scene, index: jax.Array) -> _Scene:
    """Updates one object; MAX_OBJECTS: none."""
    kind, cell, health, timer, entered = scene.objects.at[index].get(mode="fill", fill_value=0)
    u = scene.draws.of_object(cell)
    around = scene.cells.at[cell + jnp.asarray(STEPS)].get(mode="clip")
    empty, materials, kinds = is_empty(around), material_of(around), kind_of(around)
    is_free = empty & jnp.asarray(things.IS_WALKABLE)[materials]
    is_open = empty & jnp.asarray(things.IS_OPEN_TO_ARROWS)[materials]

    dx = scene.position[0] - (cell // WIDTH - BORDER)
    dy = scene.position[1] - (cell % WIDTH - BORDER)
    distance = jnp.abs(dx) + jnp.abs(dy)
    along_x = jnp.where(dx == 0, _STAYS, jnp.where(dx < 0, LEFT, RIGHT))
    along_y = jnp.where(dy == 0, _STAYS, jnp.where(dy < 0, UP, DOWN))

    def toward(by_long_axis: jax.Array) -> jax.Array:
        by_x = jnp.where(by_long_axis, jnp.abs(dx) > jnp.abs(dy), jnp.abs(dx) <= jnp.abs(dy))
        return jnp.where(by_x, along_x, along_y)

    def at(values: jax.Array, direction: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(jnp.arange(4) == direction, values, 0), dtype=jnp.int32)

    is_creature = (kind == COW) | (kind == ZOMBIE) | (kind == SKELETON)
    is_arrow, is_plant = kind == ARROW, kind == PLANT
    is_trampled = is_plant & ((kinds == COW) | (kinds == ZOMBIE) | (kinds == SKELETON)).any()
    health = jnp.where(is_trampled, jnp.maximum(health - 1, 0), health)
    dies = (is_creature | is_plant) & (health <= 0)

    # Directions. Who has just died goes nowhere, but still strikes and shoots
    somewhere = jnp.floor(4 * u.direction).astype(jnp.int32)
    cow = jnp.where(u.moves < 0.5, somewhere, _STAYS)
    zombie = jnp.where((distance <= 8) & (u.moves < 0.9), toward(u.axis < 0.8), somewhere)
    ahead = toward(u.moves < 0.6)
    retreat = jnp.where(ahead == _STAYS, _STAYS, ahead ^ 1)
    retreats = (distance <= 3) & ((retreat == _STAYS) & dies | (at(is_free, retreat) > 0))
    shoots = ~retreats & (distance <= 5) & (u.shoots < 0.5)
    follows = ~retreats & ~shoots & (distance <= 8) & (u.follows < 0.3)
    wanders = ~retreats & ~shoots & ~follows & (u.wanders < 0.2)
    skeleton = jnp.where(follows, toward(u.axis < 0.6), jnp.where(wanders, somewhere, _STAYS))
    skeleton = jnp.where(retreats, retreat, skeleton)
    way = jnp.where(kind == COW, cow, jnp.where(kind == ZOMBIE, zombie, jnp.where(kind == SKELETON, skeleton, _STAYS)))
    way = jnp.where(is_arrow, timer, way)

    # An arrow ends at what it does not fly over, hurts what stands there, and breaks tables and furnaces
    there, material = at(around, way), at(materials, way)
    lands = is_arrow & (at(is_open, way) == 0)
    hit = jnp.where(lands, kind_of(there), 0)
    breaks = lands & (hit == 0) & ((material == things.TABLE) | (material == things.FURNACE))
    dies |= lands
    moves = ~dies & jnp.where(is_arrow, True, at(is_free, way) > 0) & (is_creature | is_arrow)
    target = cell + at(jnp.asarray(STEPS), way)
    new_cell = jnp.where(moves, target, cell)

    # Zombies strike
    new_x, new_y = new_cell // WIDTH - BORDER, new_cell % WIDTH - BORDER
    new_distance = jnp.abs(scene.position[0] - new_x) + jnp.abs(scene.position[1] - new_y)
    strikes = (kind == ZOMBIE) & (new_distance <= 1)
    hurts = strikes & (timer == 0)
    damage = jnp.where(hurts, jnp.where(scene.is_sleeping, _DAMAGE_ASLEEP, _DAMAGE), 0)
    damage += jnp.where(hit == PLAYER, _ARROW_DAMAGE, 0)
    timer = jnp.where(strikes, jnp.where(hurts, _COOLDOWN, timer - 1), timer)
    timer = jnp.where(kind == SKELETON, jnp.maximum(timer - 1, 0), timer) + is_plant

    # Skeletons shoot
    aim = toward(jnp.bool_(True))
    fires = (kind == SKELETON) & shoots & (timer == 0) & (at(is_open, aim) > 0)
    timer = jnp.where(fires, _RELOAD, timer)
    fires &= scene.num_objects < MAX_OBJECTS
    arrow_cell = cell + at(jnp.asarray(STEPS), aim)

    # Changed objects: this one, one that it has hit, and one that is born
    time = scene.time + 2 * index
    entered = jnp.where(moves & (chunk_of(new_cell) != chunk_of(cell)), time, entered)
    struck = jnp.where(hit > PLAYER, index_of(there), MAX_OBJECTS)
    other = scene.objects.at[struck].get(mode="fill", fill_value=0)
    other = other.at[HEALTH].set(jnp.maximum(other[HEALTH] - _ARROW_DAMAGE, 0))
    born = jnp.where(fires, scene.num_objects, MAX_OBJECTS)
    rows = jnp.stack(
        [
            jnp.stack([jnp.where(dies, 0, kind), new_cell, health, timer, entered]),
            jnp.stack([jnp.int32(ARROW), arrow_cell, jnp.int32(0), aim, time + 1]),
            other,
        ]
    )
    ground = material_of(scene.cells.at[cell].get(mode="clip"))
    outside = len(scene.cells)
    leaves, changes = moves | dies, moves | breaks
    targets = [
        jnp.where(leaves, cell, outside),
        jnp.where(changes, target, outside),
        jnp.where(fires, arrow_cell, outside),
    ]
    values = [
        ground.astype(jnp.uint16),
        jnp.where(breaks, jnp.uint16(things.PATH), pack(material, kind, index)),
        pack(at(materials, aim), ARROW, born),
    ]
    chunks = jnp.arange(NUM_CHUNKS)
    first = jnp.where(chunks == chunk_of(new_cell), entered, NEVER)
    first = jnp.where(fires & (chunks == chunk_of(arrow_cell)), jnp.minimum(first, time + 1), first)
    return scene._replace(
        cells=scene.cells.at[jnp.stack(targets)].set(jnp.stack(values), mode="drop"),
        objects=scene.objects.at[jnp.stack([index, born, struck])].set(rows, mode="drop"),
        num_objects=scene.num_objects + fires,
        chunk_entered=jnp.where(index < MAX_OBJECTS, jnp.minimum(scene.chunk_entered, first), scene.chunk_entered),
        damage=scene.damage + damage,
    )
