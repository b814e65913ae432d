"""The player: its actions, and what its body does by itself."""

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.crafter import rules as tables
from oni_jax.envs.crafter import things
from oni_jax.envs.crafter.rules import Operation, Rules
from oni_jax.envs.crafter.state import (
    ENTRIES,
    FIRST_HEALTH,
    HEALTH,
    MAX_OBJECTS,
    NEVER,
    STEPS,
    TIMER,
    WIDTH,
    State,
    cell_of,
    chunk_of,
    index_of,
    is_empty,
    kind_of,
    material_of,
    pack,
    position_of,
)
from oni_jax.envs.crafter.things import ACHIEVEMENT, DRINK, ENERGY, FOOD, ITEM, MAX_AMOUNT

_NUM_KINDS, _NUM_MATERIALS = len(things.NAMES), len(things.MATERIALS)
_WAKE_UP = np.int32(ACHIEVEMENT["wake_up"])
_AROUND = np.array([x * WIDTH + y for x in (-1, 0, 1) for y in (-1, 0, 1)])
# Needs at which points are lost or gained: a need is more than the first four and the fifth, or less than the others
_HUNGRY, _THIRSTY, _TIRED, _RESTED, _RECOVERED, _STARVED = 25, 20, 30, -10, 25, -15


def update(rules: Rules, state: State, action: jax.Array, draw: jax.Array) -> State:
    """Takes an action [] int32; `draw`: a uniform number for what comes by chance."""
    operation, argument = _column(rules, "operation")[action], _column(rules, "argument")[action]
    is_rested = state.inventory[ENERGY] >= MAX_AMOUNT
    wakes, sleeps_on = state.is_sleeping & is_rested, state.is_sleeping & ~is_rested
    named = ~sleeps_on & _is_named(rules, state, action)
    sleep_chosen = (operation == Operation.SLEEP) & ~is_rested
    operation = jnp.where(sleeps_on, Operation.SLEEP, operation)
    state = state._replace(
        is_sleeping=(state.is_sleeping & ~wakes) | ((operation == Operation.SLEEP) & ~is_rested),
        achievements=state.achievements.at[_WAKE_UP].add(wakes),
    )
    target = cell_of(state.position) + jnp.asarray(STEPS)[state.direction]
    faced, material = kind_of(state.cells[target]), material_of(state.cells[target])
    words = jnp.asarray(_events(rules))[action]

    state, struck = _strike(rules, state, operation, argument, target, faced)
    state, collected = _collect(rules, state, operation, argument, target, faced, material, draw)
    state, put = _put(rules, state, operation, argument, target, material)
    state, made = _make(state, operation, argument)
    state, moved = _move(state, operation, argument)
    does_nothing = (words == tables.EVENTS.index(tables.NOOP.words)) & ~sleeps_on
    succeeded = struck | collected | put | made | moved | sleep_chosen | does_nothing
    thing = jnp.where(faced > 0, faced, material)
    words = jnp.where(operation == Operation.DO, jnp.asarray(tables.EVENT_OF_FACED)[thing], words)
    return _live(state)._replace(
        event=jnp.where(succeeded, words, 0).astype(jnp.uint8), names_something=succeeded | named
    )


def _column(rules: Rules, name: str) -> jax.Array:
    return jnp.array([getattr(action, name) for action in rules.actions], jnp.int32)


def _events(rules: Rules) -> np.ndarray:
    """Returns each action's event [A] uint8; 0: it has none."""
    known = {words: i for i, words in enumerate(tables.EVENTS)}
    return np.array([known.get(action.words, 0) for action in rules.actions], np.uint8)


def _is_named(rules: Rules, state: State, action: jax.Array) -> jax.Array:
    """Returns whether the action's words name what is faced, what that stands on, or what is owned."""
    names = [action.noun for action in rules.actions]
    things_named = np.array([[name == thing for thing in things.NAMES] for name in names])
    things_named[:, _NUM_MATERIALS] = False  # the player
    items_named = np.array([[name == item.replace("_", " ") for item in things.ITEMS] for name in names])
    target = cell_of(state.position) + jnp.asarray(STEPS)[state.direction]
    named, owned = jnp.asarray(things_named)[action], jnp.asarray(items_named)[action]
    faced, material = kind_of(state.cells[target]), material_of(state.cells[target])
    return jnp.array([bool(name) for name in names])[action] & (
        (named[faced] & (faced > 0)) | (named[material] & (material > 0)) | (owned & (state.inventory > 0)).any()
    )


def _has(state: State, needed: jax.Array) -> jax.Array:
    return (state.inventory >= needed).all()


def _strike(
    rules: Rules, state: State, operation: jax.Array, argument: jax.Array, target: jax.Array, faced: jax.Array
) -> tuple[State, jax.Array]:
    """Strikes a creature, or eats a ripe plant."""
    strikes = (operation == Operation.DO) | ((operation == Operation.STRIKE) & (faced == argument))
    index = index_of(state.cells[target])
    row = state.objects.at[index].get(mode="clip")
    swords = jnp.array([ITEM[name] for name in tables.SWORDS])
    damage = jnp.max(
        jnp.where(state.inventory[swords] > 0, jnp.array(rules.damages[1:]), rules.damages[0]), initial=rules.damages[0]
    )
    is_plant = faced == things.PLANT
    is_creature = (faced == things.COW) | (faced == things.ZOMBIE) | (faced == things.SKELETON)
    health = jnp.where(is_creature, jnp.maximum(row[HEALTH] - damage, 0), row[HEALTH])
    hits, eats = strikes & is_creature, strikes & is_plant & (row[TIMER] > tables.RIPE)
    ends = (hits & (health <= 0)) | eats
    achieved, food = _struck_tables()
    achievements = state.achievements + ends * achieved[faced]
    row = row.at[HEALTH].set(jnp.where(hits, health, row[HEALTH])).at[TIMER].set(jnp.where(eats, 0, row[TIMER]))
    state = state._replace(
        objects=state.objects.at[jnp.where(hits | eats, index, MAX_OBJECTS)].set(row, mode="drop"),
        achievements=achievements,
        inventory=state.inventory.at[FOOD].add(jnp.where(ends, food[faced], 0)),
        needs=state.needs.at[0].multiply(~(ends & (faced == things.COW))),
    )
    return state, hits | eats


def _struck_tables() -> tuple[jax.Array, jax.Array]:
    """Returns achievements [kinds, 22] and food [kinds] of what is struck down."""
    achieved, food = np.zeros((_NUM_KINDS, len(things.ACHIEVEMENTS)), np.int32), np.zeros(_NUM_KINDS, np.int32)
    for kind, (name, amount) in tables.STRUCK.items():
        achieved[kind, ACHIEVEMENT[name]], food[kind] = 1, amount
    return jnp.asarray(achieved), jnp.asarray(food)


def _collect(
    rules: Rules,
    state: State,
    operation: jax.Array,
    argument: jax.Array,
    target: jax.Array,
    faced: jax.Array,
    material: jax.Array,
    draw: jax.Array,
) -> tuple[State, jax.Array]:
    """Collects what the material that is faced gives, and leaves what it leaves."""
    item, leaves, needs, probability, achieved = (jnp.asarray(table)[material] for table in _COLLECT_TABLES)
    tries = ((operation == Operation.DO) & (faced == 0)) | ((operation == Operation.COLLECT) & (material == argument))
    collects = tries & (leaves > 0) & _has(state, needs)
    gains = collects & (draw <= probability) & (state.inventory[item] < rules.most_collected)
    state = state._replace(
        cells=state.cells.at[target].add(jnp.where(collects, leaves - material, 0).astype(jnp.uint16)),
        inventory=state.inventory.at[item].add(gains),
        achievements=state.achievements.at[achieved].add(gains),
        needs=state.needs.at[1].multiply(~(tries & (material == things.WATER))),
    )
    return state, gains


def _collect_tables() -> tuple[np.ndarray, ...]:
    """Returns by material: item, what it leaves (0: can't be collected), needs [.., 16], probability, achievement."""
    item, leaves, achieved = np.zeros((3, _NUM_MATERIALS), np.int32)
    needs, probability = np.zeros((_NUM_MATERIALS, len(things.ITEMS)), np.int32), np.zeros(_NUM_MATERIALS, np.float32)
    for material, collected in tables.COLLECTED.items():
        item[material], leaves[material] = ITEM[collected.item], collected.leaves
        achieved[material] = ACHIEVEMENT[f"collect_{collected.item}"]
        needs[material] = tables.amounts(((collected.needs, 1),) if collected.needs else ())
        probability[material] = collected.probability
    return item, leaves, needs, probability, achieved


_COLLECT_TABLES = _collect_tables()


def _put(
    rules: Rules, state: State, operation: jax.Array, argument: jax.Array, target: jax.Array, material: jax.Array
) -> tuple[State, jax.Array]:
    """Puts a material or a plant on a free cell."""
    placements = tables.placements(rules.wood_for_table)
    index = jnp.where(operation == Operation.PLACE, argument, 0)
    uses = jnp.asarray(np.stack([tables.amounts(one.uses) for one in placements]))[index]
    where = np.array([[material in one.where for material in range(_NUM_MATERIALS)] for one in placements])
    becomes = jnp.array([one.becomes for one in placements])[index]
    achieved = jnp.array([ACHIEVEMENT[f"place_{one.name}"] for one in placements])[index]
    puts = operation == Operation.PLACE
    here = state.cells[target]
    puts &= is_empty(here) & jnp.asarray(where)[index, material] & _has(state, uses)
    grows = puts & (becomes == things.PLANT)
    # A sapling grows nothing without room for another object, though it is gone
    new = jnp.where(grows & (state.num_objects < MAX_OBJECTS), state.num_objects, MAX_OBJECTS)
    plant = jnp.stack(
        [jnp.int32(things.PLANT), target, jnp.int32(FIRST_HEALTH[things.PLANT]), jnp.int32(0), _now(state)]
    )
    stands = jnp.where(new < MAX_OBJECTS, pack(here, things.PLANT, new), here)
    state = state._replace(
        inventory=state.inventory - puts * uses,
        cells=state.cells.at[target].set(jnp.where(puts & ~grows, becomes.astype(jnp.uint16), stands)),
        objects=state.objects.at[new].set(plant, mode="drop"),
        num_objects=state.num_objects + (new < MAX_OBJECTS),
        chunk_entered=state.chunk_entered.at[chunk_of(target)].min(jnp.where(grows, _now(state), NEVER)),
        achievements=state.achievements.at[achieved].add(puts),
    )
    return state, puts


def _now(state: State) -> jax.Array:
    """Returns the time of entry of what the player does, which comes first in a step."""
    return state.num_steps * ENTRIES


def _make(state: State, operation: jax.Array, argument: jax.Array) -> tuple[State, jax.Array]:
    index = jnp.where(operation == Operation.MAKE, argument, 0)
    uses = jnp.asarray(np.stack([tables.amounts(made.uses) for made in tables.MADE]))[index]
    item = jnp.array([ITEM[made.item] for made in tables.MADE])[index]
    achieved = jnp.array([ACHIEVEMENT[f"make_{made.item}"] for made in tables.MADE])[index]
    around = material_of(state.cells[cell_of(state.position) + _AROUND])
    nearby = jnp.stack([(around == material).any() for material in (things.TABLE, things.FURNACE)])
    nearby &= (state.position > 0).all()  # Crafter finds nothing beside the map's first row or column
    needs = [[material in made.nearby for material in (things.TABLE, things.FURNACE)] for made in tables.MADE]
    makes = (operation == Operation.MAKE) & (nearby | ~jnp.array(needs)[index]).all() & _has(state, uses)
    state = state._replace(
        inventory=(state.inventory - makes * uses).at[item].add(makes),
        achievements=state.achievements.at[achieved].add(makes),
    )
    return state, makes


def _move(state: State, operation: jax.Array, argument: jax.Array) -> tuple[State, jax.Array]:
    """Turns to a direction, and goes there if the cell is free."""
    turns = operation == Operation.MOVE
    direction = jnp.where(turns, argument, state.direction)
    cell = cell_of(state.position)
    target = cell + jnp.asarray(STEPS)[direction]
    there = state.cells[target]
    moves = turns & is_empty(there) & jnp.asarray(things.IS_OPEN_TO_PLAYER)[material_of(there)]
    new = jnp.where(moves, target, cell)
    material = material_of(state.cells[new])
    burns = turns & (material == things.LAVA)
    cells = state.cells.at[cell].set(material_of(state.cells[cell]).astype(jnp.uint16))
    state = state._replace(
        direction=direction,
        position=position_of(new),
        cells=cells.at[new].set(pack(material, things.PLAYER, 0)),
        inventory=state.inventory.at[things.HEALTH].multiply(~burns),
        chunk_entered=state.chunk_entered.at[chunk_of(new)].min(_now(state)),
    )
    return state, moves


def _live(state: State) -> State:
    """Lets time pass for the body: hunger, thirst, fatigue, and health; wakes who was hurt."""
    asleep = state.is_sleeping
    half = jnp.where(asleep, 0.5, 1.0)
    hunger, thirst, fatigue, recovery = state.needs
    hunger, thirst = hunger + half, thirst + half
    fatigue = jnp.where(asleep, jnp.minimum(fatigue - 1, 0), fatigue + 1)
    starves, parches, rests, tires = hunger > _HUNGRY, thirst > _THIRSTY, fatigue < _RESTED, fatigue > _TIRED
    inventory = state.inventory.at[FOOD].add(-starves.astype(jnp.int32)).at[DRINK].add(-parches.astype(jnp.int32))
    inventory = inventory.at[ENERGY].add(rests.astype(jnp.int32) - tires.astype(jnp.int32))
    is_well = (inventory[FOOD] > 0) & (inventory[DRINK] > 0) & ((inventory[ENERGY] > 0) | asleep)
    recovery += jnp.where(is_well, jnp.where(asleep, 2.0, 1.0), -half)
    heals, weakens = recovery > _RECOVERED, recovery < _STARVED
    health = inventory[things.HEALTH] + heals - weakens
    inventory = jnp.clip(inventory.at[things.HEALTH].set(health), 0, MAX_AMOUNT)
    needs = [
        jnp.where(starves, 0.0, hunger),
        jnp.where(parches, 0.0, thirst),
        jnp.where(rests | tires, 0.0, fatigue),
        jnp.where(heals | weakens, 0.0, recovery),
    ]
    is_hurt = inventory[things.HEALTH] < state.last_health
    return state._replace(
        inventory=inventory,
        needs=jnp.stack(needs),
        is_sleeping=asleep & ~is_hurt,
        last_health=inventory[things.HEALTH],
    )
