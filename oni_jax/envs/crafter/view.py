"""The part of a world that the player perceives, and the keys of captions, from which the host makes texts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.crafter import things
from oni_jax.envs.crafter.balance import DAY, daylight
from oni_jax.envs.crafter.rules import RIPE
from oni_jax.envs.crafter.state import BORDER, TIMER, WIDTH, State, index_of, kind_of, material_of
from oni_jax.envs.crafter.things import DIRECTIONS, HEALTH, MAX_AMOUNT, NAMES, PLAYER, SIZE, VIEW, VITALS
from oni_jax.types import Array

COLUMN, ROW = VIEW[0] // 2, VIEW[1] // 2  # cell of the player
NOT_SEEN = 255  # index of a cell
ASLEEP, DEAD, OUTSIDE = 1, 2, 4  # flags of a key


class Seen(NamedTuple):
    """The player's view, and itself."""

    materials: Array  # [9, 7] uint8, by x and y; 0 outside the map
    kinds: Array  # [9, 7] uint8; of what stands there, the player too, or 0
    position: Array  # [2] int32
    direction: Array  # [] int32
    inventory: Array  # [16] int32
    is_sleeping: Array  # [] bool
    is_dead: Array  # [] bool


def look(state: State) -> Seen:
    """Returns what a player sees, by day and night."""
    part = _part(state)
    return Seen(
        material_of(part).astype(jnp.uint8),
        kind_of(part).astype(jnp.uint8),
        state.position,
        state.direction,
        state.inventory,
        state.is_sleeping,
        state.inventory[HEALTH] <= 0,
    )


def cells(seen: Seen) -> jax.Array:
    """Returns the numbers [9, 7] uint8 of what is seen on each cell: what stands there, else the material."""
    return jnp.where(seen.kinds > 0, seen.kinds, seen.materials)


def in_view(seen: Seen) -> jax.Array:
    """Returns which of NAMES are in view [N] bool, as bits of a word first: comparisons take longer on a CPU."""
    names = np.arange(len(NAMES), dtype=np.uint32)  # fewer than 32
    bits = jnp.uint32(1) << cells(seen).reshape(-1).astype(jnp.uint32)
    return (jax.lax.reduce(bits, jnp.uint32(0), jax.lax.bitwise_or, (0,)) >> names) & 1 > 0


def tiles(state: State) -> jax.Array:
    """Returns the numbers of TILES [9, 7] uint8 of what is seen on each cell."""
    seen, index = look(state), index_of(_part(state))
    timers = state.objects[:, TIMER].at[index].get(mode="clip")
    arrow = jnp.where(timers == 0, things.ARROW, len(NAMES) + timers)
    plant = jnp.where(timers > RIPE, len(NAMES), things.PLANT)
    shown = cells(seen)
    return jnp.where(shown == things.ARROW, arrow, jnp.where(shown == things.PLANT, plant, shown)).astype(jnp.uint8)


def status(state: State) -> jax.Array:
    """Returns [22] float32: inventory, direction as one of four, whether asleep, and the light, each from 0 to 1."""
    light = jnp.asarray(daylight(np.arange(DAY)), jnp.float32)[state.num_steps % DAY]
    facing = state.direction == jnp.arange(len(DIRECTIONS))
    parts = [state.inventory / MAX_AMOUNT, facing, state.is_sleeping[None], light[None]]
    return jnp.concatenate([part.astype(jnp.float32) for part in parts])


def _part(state: State) -> jax.Array:
    """Returns the cells [9, 7] that the player sees."""
    first = state.position + BORDER - np.array([COLUMN, ROW])
    return jax.lax.dynamic_slice(state.cells.reshape(WIDTH, WIDTH), first, VIEW)


def _faced(seen: Seen) -> tuple[jax.Array, jax.Array]:
    """Returns kind and material of the cell that is faced."""
    x, y = jnp.array([COLUMN, ROW]) + jnp.asarray(DIRECTIONS)[seen.direction]
    return seen.kinds[x, y], seen.materials[x, y]


_UNNAMED = (things.OUTSIDE, things.SAND, PLAYER, things.ARROW)  # ELLM does not list them
ELLM_LISTED = np.array([i for i in range(len(NAMES)) if i not in _UNNAMED])
_UNTARGETED = (things.OUTSIDE, things.PATH, things.SAND, things.LAVA)  # materials


class _Said(NamedTuple):
    """Contents of ELLM's caption."""

    visible: jax.Array  # bool, of ELLM_LISTED
    faced: jax.Array  # [] number of NAMES; 0: nothing that is named
    owned: jax.Array  # bool, of the items after VITALS
    lacking: jax.Array  # bool, of VITALS


def _said(seen: Seen) -> _Said:
    visible = in_view(seen)[ELLM_LISTED]
    kind, material = _faced(seen)
    faced = jnp.where(kind > 0, kind, jnp.where(jnp.isin(material, jnp.array(_UNTARGETED)), 0, material))
    owned, lacking = seen.inventory[len(VITALS) :] > 0, seen.inventory[: len(VITALS)] < MAX_AMOUNT
    return _Said(visible, faced, owned, lacking)


def ellm_key(seen: Seen) -> jax.Array:
    """Returns ELLM's caption as [6] uint8: bits of what is seen, what is faced, and bits of what is owned and lacks."""
    said = _said(seen)
    bits = [jnp.packbits(x, bitorder="little") for x in (said.visible, said.owned, said.lacking)]
    return jnp.concatenate([bits[0], said.faced.astype(jnp.uint8)[None], *bits[1:]])


def ellm_features(seen: Seen) -> jax.Array:
    """Returns what ELLM's caption says as [F] float32, each 0 or 1; see `captions.read_ellm_caption`."""
    said = _said(seen)
    faced = said.faced == np.arange(1, len(NAMES))
    return jnp.concatenate([said.visible, faced, said.owned, said.lacking]).astype(jnp.float32)


def bk_key(seen: Seen) -> jax.Array:
    """Returns BK's caption as [37] uint8: where the nearest cell of each thing is, what is faced, inventory, flags."""
    x, y = np.meshgrid(np.arange(VIEW[0]), np.arange(VIEW[1]), indexing="ij")
    distance = np.abs(x - COLUMN) + np.abs(y - ROW)
    order = np.argsort(distance.reshape(-1), kind="stable")  # the nearest, of smaller x, then smaller y
    is_there = cells(seen).reshape(-1)[order] == jnp.arange(len(NAMES))[:, None]  # [things, cells]
    nearest = jnp.where(is_there.any(1), jnp.asarray(order)[jnp.argmax(is_there, axis=1)], NOT_SEEN)
    kind, material = _faced(seen)
    at = seen.position + jnp.asarray(DIRECTIONS)[seen.direction]
    is_outside = (seen.position < jnp.array([COLUMN, ROW])).any() | ((at < 0) | (at >= SIZE)).any()
    is_outside |= seen.kinds[COLUMN, ROW] != PLAYER
    flags = ASLEEP * seen.is_sleeping + DEAD * seen.is_dead + OUTSIDE * is_outside
    parts = [nearest, jnp.where(kind > 0, kind, material)[None], seen.inventory, flags[None]]
    return jnp.concatenate(parts).astype(jnp.uint8)
