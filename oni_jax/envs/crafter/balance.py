"""Births and deaths of cows, zombies and skeletons, chunk by chunk, and the light that they depend on."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.crafter import things
from oni_jax.envs.crafter.draws import Draws
from oni_jax.envs.crafter.loops import when
from oni_jax.envs.crafter.state import (
    BORDER,
    CELL,
    ENTERED,
    ENTRIES,
    FIRST_HEALTH,
    KIND,
    MAX_OBJECTS,
    NEVER,
    NUM_CHUNKS,
    WIDTH,
    State,
    chunk_of,
    is_empty,
    kind_of,
    material_of,
    pack,
    position_of,
)
from oni_jax.envs.crafter.things import CHUNK, COW, SIZE, SKELETON, ZOMBIE

PERIOD = 10  # steps
DAY = 300  # steps
_SIDE = -(-SIZE // CHUNK)  # chunks
_BITS = 32  # bits of a word
_BEFORE = np.tri(CHUNK + 1, CHUNK, k=-1, dtype=np.float32)  # matrix from counts to their sums before each, and of all


def daylight(num_steps: np.ndarray) -> np.ndarray:
    """Returns the light, from 0 to 1, after so many steps."""
    return 1 - np.abs(np.cos(np.pi * ((num_steps / DAY) % 1 + 0.3))) ** 3


class _Kind(NamedTuple):
    """A kind of creature: how many a chunk holds, and where they come and go."""

    kind: int
    material: int  # material that they are born on
    space: int  # cells of it that a chunk has to have
    fewest: np.ndarray  # [DAY] int32; of them in a chunk, by the time of day, else one may be born
    most: np.ndarray  # [DAY] int32; else one may vanish
    birth: float  # probabilities
    death: float
    birth_distance: int  # least distance from the player
    death_distance: int


_LIGHT = daylight(np.arange(DAY))
_NIGHTLY = (3.5 - 3 * _LIGHT).astype(np.int32)
_ONES = np.ones(DAY, np.int32)
_KINDS = (
    _Kind(ZOMBIE, things.GRASS, 50, _NIGHTLY, _NIGHTLY, 0.3, 0.4, 6, 0),
    _Kind(SKELETON, things.PATH, 6, _ONES, 2 * _ONES, 0.1, 0.1, 7, 7),
    _Kind(COW, things.GRASS, 30, _ONES, (1.5 + _LIGHT).astype(np.int32), 0.01, 0.1, 5, 5),
)
_NUM_KINDS, _NUM_GROUPS = len(_KINDS), len(_KINDS) * NUM_CHUNKS


def update(state: State, draws: Draws) -> State:
    """Lets creatures come and go in every chunk that something has ever entered."""
    state = when(state.num_objects > MAX_OBJECTS // 2, compact, state, 1 / 16)
    u = draws.of_chunks(_NUM_KINDS, NUM_CHUNKS)
    groups, grounds = _groups(state), _grounds(state)
    counts = jnp.zeros(_NUM_GROUPS + 1, jnp.int32).at[groups].add(1)[:-1].reshape(_NUM_KINDS, -1)
    spaces = [grounds[kind.material].before[:, -1] for kind in _KINDS]
    time = state.num_steps % DAY
    was_entered = state.chunk_entered < NEVER
    grow, nth = [], []
    for kind, count, space, numbers in zip(_KINDS, counts, spaces, u):
        fewest = jnp.where(space < kind.space, 0, jnp.asarray(kind.fewest)[time])
        grow.append(was_entered & (count < fewest) & (numbers[:, 0] < kind.birth))
        shrinks = (count >= fewest) & (count > jnp.asarray(kind.most)[time]) & (numbers[:, 0] < kind.death)
        nth.append(jnp.where(was_entered & shrinks, jnp.floor(numbers[:, 1] * count).astype(jnp.int32), -1))
    # Kinds come one after the other: what leaves makes room for its kind and those after it
    chosen = _chosen(state, groups, jnp.concatenate(nth))
    kinds, at = state.objects[:, KIND], state.objects[:, CELL]
    needed = sum((jnp.where(kinds == kind.kind, kind.death_distance, 0) for kind in _KINDS), jnp.zeros_like(kinds))
    goes = chosen & (_distance(state, at) >= needed)
    left = jnp.where(goes, at, len(state.cells))
    cells = state.cells.at[left].set(material_of(state.cells[at]).astype(jnp.uint16), mode="drop")
    born_at: list[jax.Array] = []
    for i, kind in enumerate(_KINDS):
        cell = _nth_cell(grounds[kind.material], jnp.floor(u[i, :, 1] * spaces[i]).astype(jnp.int32))
        leaves_later = functools.reduce(
            jnp.logical_or, [kind_of(state.cells[cell]) == later.kind for later in _KINDS[i + 1 :]], jnp.bool_(False)
        )
        is_free = is_empty(cells[cell]) & ~leaves_later
        is_free &= functools.reduce(jnp.logical_and, [cell != earlier for earlier in born_at], jnp.bool_(True))
        is_away = _distance(state, cell) >= kind.birth_distance
        born_at.append(jnp.where(grow[i] & is_free & is_away, cell, 0))
    state = state._replace(cells=cells, objects=state.objects.at[:, KIND].multiply(~goes))
    return _add(state, jnp.stack(born_at, axis=1))


def compact(state: State) -> State:
    """Moves the objects that exist to the front, in their order."""
    kinds, at = state.objects[:, KIND], state.objects[:, CELL]
    exists = kinds > 0
    index = jnp.where(exists, _count_before(exists), MAX_OBJECTS)
    targets = jnp.where(exists, at, len(state.cells))
    return state._replace(
        objects=jnp.zeros_like(state.objects).at[index].set(state.objects, mode="drop"),
        cells=state.cells.at[targets].set(pack(material_of(state.cells[at]), kinds, index), mode="drop"),
        num_objects=exists.sum(dtype=jnp.int32),
    )


def _count_before(chosen: jax.Array) -> jax.Array:
    """Returns the number of chosen elements [N] before each, N a multiple of 32.

    By bits of words: XLA's cumulative sum is slow on CPUs.
    """
    bits = jnp.arange(_BITS, dtype=jnp.uint32)
    words = jnp.sum(chosen.reshape(-1, _BITS).astype(jnp.uint32) << bits, axis=1, dtype=jnp.uint32)
    within = jax.lax.population_count(words[:, None] & ((jnp.uint32(1) << bits) - 1)).astype(jnp.int32)
    earlier = jnp.asarray(np.tri(len(words), k=-1, dtype=np.int32)) @ jax.lax.population_count(words).astype(jnp.int32)
    return (earlier[:, None] + within).reshape(-1)


def _groups(state: State) -> jax.Array:
    """Returns each object's group [MAX_OBJECTS], those of its kind in its chunk; _NUM_GROUPS: none is counted."""
    kinds = state.objects[:, KIND]
    number = sum((jnp.where(kinds == kind.kind, i, 0) for i, kind in enumerate(_KINDS)), jnp.zeros_like(kinds))
    is_counted = functools.reduce(jnp.logical_or, [kinds == kind.kind for kind in _KINDS])
    return jnp.where(is_counted, number * NUM_CHUNKS + chunk_of(state.objects[:, CELL]), _NUM_GROUPS)


def _chosen(state: State, groups: jax.Array, nth: jax.Array) -> jax.Array:
    """Returns which objects are the n-th of their group, from 0 on, in the order in which they entered its chunk.

    Args:
      state: of the world.
      groups: of its objects.
      nth: [_NUM_GROUPS] int32; -1: none of the group.
    """
    entered, nth = state.objects[:, ENTERED], jnp.append(nth, -1)

    def find_next(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        i, found = carry
        later = jnp.where(entered > found[groups], entered, NEVER)
        earliest = jnp.full_like(found, NEVER).at[groups].min(later)
        return i + 1, jnp.where(i <= nth, earliest, found)

    _, found = jax.lax.while_loop(
        lambda carry: carry[0] <= nth.max(), find_next, (jnp.int32(0), jnp.full_like(nth, -1))
    )
    return entered == found[groups]


class _Ground(NamedTuple):
    """Cells of a material in each chunk, by its columns."""

    columns: jax.Array  # [NUM_CHUNKS, 12] int32; by x, bit y of a cell of the material
    before: jax.Array  # [NUM_CHUNKS, 13] int32; their number in the columns before each; the last: in all


# The index of each column's n-th bit
_NTH_BIT = np.zeros((1 << CHUNK, CHUNK), np.uint8)
for _column in range(1 << CHUNK):
    _ones = [bit for bit in range(CHUNK) if _column >> bit & 1]
    _NTH_BIT[_column, : len(_ones)] = _ones


def _grounds(state: State) -> dict[int, _Ground]:
    """Returns for each material that something is born on where it is."""
    inside = material_of(state.cells).reshape(WIDTH, WIDTH)[BORDER:-BORDER, BORDER:-BORDER]
    materials = sorted({kind.material for kind in _KINDS})
    y = np.arange(SIZE)
    powers = np.where(y[:, None] // CHUNK == np.arange(_SIDE), 1 << y[:, None] % CHUNK, 0).astype(np.float32)
    # One product for all materials, each in separate bits: exact, as its sums are below 2^24
    values = sum(
        (jnp.where(inside == material, 2.0 ** (CHUNK * i), 0.0) for i, material in enumerate(materials)), jnp.float32(0)
    )
    columns = (values @ jnp.asarray(powers)).astype(jnp.int32)  # [x, chunk]
    columns = jnp.pad(columns, ((0, _SIDE * CHUNK - SIZE), (0, 0)))
    columns = columns.reshape(_SIDE, CHUNK, _SIDE).swapaxes(1, 2).reshape(NUM_CHUNKS, CHUNK)

    masks = [columns >> CHUNK * i & (1 << CHUNK) - 1 for i in range(len(materials))]
    counts = sum((jax.lax.population_count(x) << 8 * i for i, x in enumerate(masks)), jnp.int32(0))
    before = (counts.astype(jnp.float32) @ _BEFORE.T).astype(jnp.int32)
    return {material: _Ground(x, before >> 8 * i & 255) for i, (material, x) in enumerate(zip(materials, masks))}


def _nth_cell(ground: _Ground, nth: jax.Array) -> jax.Array:
    """Returns each chunk's n-th cell of the material [NUM_CHUNKS], n from 0 on, by x, then y."""
    x = jnp.sum(ground.before[:, 1:-1] <= nth[:, None], axis=1, dtype=jnp.int32)
    chunks = jnp.arange(NUM_CHUNKS)
    y = jnp.asarray(_NTH_BIT)[ground.columns[chunks, x], nth - ground.before[chunks, x]].astype(jnp.int32)
    return (chunks // _SIDE * CHUNK + x + BORDER) * WIDTH + chunks % _SIDE * CHUNK + y + BORDER


def _distance(state: State, cells: jax.Array) -> jax.Array:
    return jnp.abs(position_of(cells) - state.position).sum(-1)


def _add(state: State, born_at: jax.Array) -> State:
    """Adds what is born at cells [NUM_CHUNKS, kinds], in the order in which chunks were first entered."""
    entered = state.chunk_entered
    order = (entered < entered[:, None]).sum(1, dtype=jnp.int32)  # order within each chunk
    is_born = (born_at > 0).reshape(-1)
    position = (order[:, None] * _NUM_KINDS + jnp.arange(_NUM_KINDS)).reshape(-1)
    before = ((position < position[:, None]) & is_born).sum(1, dtype=jnp.int32)
    index = jnp.where(is_born, state.num_objects + before, MAX_OBJECTS)
    kinds = jnp.tile(jnp.array([kind.kind for kind in _KINDS]), NUM_CHUNKS)
    materials = jnp.tile(jnp.array([kind.material for kind in _KINDS]), NUM_CHUNKS)
    cells = born_at.reshape(-1)
    time = state.num_steps * ENTRIES + ENTRIES // 2 + before
    rows = [kinds, cells, jnp.asarray(FIRST_HEALTH)[kinds], 0 * kinds, time]
    stands = pack(materials, jnp.where(index < MAX_OBJECTS, kinds, 0), jnp.where(index < MAX_OBJECTS, index, 0))
    return state._replace(
        objects=state.objects.at[index].set(jnp.stack(rows, axis=1), mode="drop"),
        cells=state.cells.at[jnp.where(is_born, cells, len(state.cells))].set(stands, mode="drop"),
        num_objects=jnp.minimum(state.num_objects + is_born.sum(dtype=jnp.int32), MAX_OBJECTS),
    )
