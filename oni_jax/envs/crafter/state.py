"""A Crafter world's state: a map with a border, and what stands on it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.crafter import things
from oni_jax.envs.crafter.things import CHUNK, PLAYER, SIZE
from oni_jax.types import Array

BORDER = 4  # cells outside the map, as far as the player can see
WIDTH = SIZE + 2 * BORDER
NUM_CHUNKS = (-(-SIZE // CHUNK)) ** 2
MAX_OBJECTS = 192  # number without the player; nothing is born beyond. Crafter has no limit
NEVER = np.iinfo(np.int32).max
ENTRIES = 1024  # entries of a step; see `State.objects`

# Columns of an object
KIND, CELL, HEALTH, TIMER, ENTERED = range(5)
STEPS = np.array([-WIDTH, WIDTH, -1, 1], np.int32)  # offsets of the next cell in each direction


class State(NamedTuple):
    """One world's. A cell's index counts by x, then y, and the map has a border around it."""

    cells: jax.Array  # [WIDTH * WIDTH] uint16; see `pack`
    # [MAX_OBJECTS, 5] int32, in the order of birth: kind (0: none), cell, health, timer, and when it entered its chunk.
    # The timer: a zombie's cooldown, a skeleton's reload, an arrow's direction, a plant's age. Times of entry are only
    # compared: ENTRIES for each step, and within it the order of what happens.
    objects: jax.Array
    num_objects: jax.Array  # [] int32; the first so many were used since objects were last compacted
    chunk_entered: jax.Array  # [NUM_CHUNKS] int32; when something first entered each chunk, or NEVER
    position: jax.Array  # [2] int32; of the player, from (0, 0)
    direction: jax.Array  # [] int32; that the player faces
    inventory: jax.Array  # [16] int32
    is_sleeping: jax.Array  # [] bool
    needs: jax.Array  # [4] float32; hunger, thirst, fatigue, recovery
    last_health: jax.Array  # [] int32; after the player's last update
    paid_health: jax.Array  # [] int32; after the last step
    achievements: jax.Array  # [22] int32; times that each was achieved
    num_steps: jax.Array  # [] int32
    event: jax.Array  # [] uint8; index into EVENTS of the last action, where it succeeded
    names_something: jax.Array  # [] bool; the last action succeeded, or named what was faced or owned


def pack(materials: Array, kinds: Array | int, index: Array | int) -> Array:
    """Returns cells of materials, of what stands on them (0: nothing), and of its index among the objects."""
    standing = jnp.where(jnp.asarray(kinds) > 0, jnp.asarray(kinds) - PLAYER + 1, 0)
    return (jnp.asarray(materials) | standing << 4 | jnp.asarray(index) << 7).astype(jnp.uint16)


def material_of(cells: Array) -> Array:
    return (cells & 15).astype(jnp.int32)


def kind_of(cells: Array) -> Array:
    standing = (cells >> 4 & 7).astype(jnp.int32)
    return jnp.where(standing > 0, standing + PLAYER - 1, 0)


def index_of(cells: Array) -> Array:
    """Returns the index of the object that stands on a cell, or MAX_OBJECTS."""
    return jnp.where((cells >> 4 & 7) > 1, cells >> 7, MAX_OBJECTS).astype(jnp.int32)


def is_empty(cells: Array) -> Array:
    return cells < 16


def cell_of(position: Array) -> Array:
    """Returns the cell of a position [..., 2]."""
    return (position[..., 0] + BORDER) * WIDTH + position[..., 1] + BORDER


def position_of(cell: Array) -> Array:
    """Returns the position [..., 2] of a cell."""
    return jnp.stack([cell // WIDTH - BORDER, cell % WIDTH - BORDER], axis=-1)


def chunk_of(cell: Array) -> Array:
    """Returns the chunk's index of a cell inside the map."""
    x, y = cell // WIDTH - BORDER, cell % WIDTH - BORDER
    return x // CHUNK * (-(-SIZE // CHUNK)) + y // CHUNK


FIRST_HEALTH = np.zeros(len(things.NAMES), np.int32)
FIRST_HEALTH[[things.COW, things.ZOMBIE, things.SKELETON, things.PLANT]] = 3, 5, 3, 1


def begin(materials: Array, kinds: Array, positions: Array) -> State:
    """Returns the first state of a map, see `maps.Map`: the player in the middle, looking down."""
    flat = pack(jnp.pad(materials, BORDER).reshape(-1), 0, 0)
    index = jnp.arange(len(kinds), dtype=jnp.int32)
    exists = kinds > 0
    at = cell_of(positions.astype(jnp.int32))
    objects = jnp.stack([kinds.astype(jnp.int32), at, jnp.asarray(FIRST_HEALTH)[kinds], 0 * index, index + 1], axis=1)
    objects = jnp.pad(jnp.where(exists[:, None], objects, 0), ((0, MAX_OBJECTS - len(kinds)), (0, 0)))
    position = jnp.full(2, SIZE // 2, jnp.int32)
    player_cell = cell_of(position)
    standing = jnp.where(exists, at, len(flat))
    cells = flat.at[standing].set(pack(material_of(flat[at]), kinds, index), mode="drop")
    chunks = jnp.full(NUM_CHUNKS, NEVER, jnp.int32).at[chunk_of(player_cell)].set(0)
    chunks = chunks.at[jnp.where(exists, chunk_of(at), NUM_CHUNKS)].min(index + 1, mode="drop")
    inventory = jnp.zeros(len(things.ITEMS), jnp.int32).at[: len(things.VITALS)].set(things.MAX_AMOUNT)
    return State(
        cells=cells.at[player_cell].set(pack(material_of(flat[player_cell]), PLAYER, 0)),
        objects=objects,
        num_objects=exists.sum(dtype=jnp.int32),
        chunk_entered=chunks,
        position=position,
        direction=jnp.int32(things.DOWN),
        inventory=inventory,
        is_sleeping=jnp.bool_(False),
        needs=jnp.zeros(4, jnp.float32),
        last_health=inventory[things.HEALTH],
        paid_health=inventory[things.HEALTH],
        achievements=jnp.zeros(len(things.ACHIEVEMENTS), jnp.int32),
        num_steps=jnp.int32(0),
        event=jnp.uint8(0),
        names_something=jnp.bool_(False),
    )
