"""Whole steps against PyPI's `crafter`, with the same numbers for both."""

import jax
import numpy as np
import pytest

from oni_jax.envs.crafter import maps, things, world
from oni_jax.envs.crafter import state as states
from oni_jax.envs.crafter.levels import VARIANTS
from oni_jax.envs.crafter.rules import COLLECTED, Operation, Rules
from tests.envs.crafter.reference import Reference, Script, make_script

NUM_ITEMS = len(things.ITEMS)
_WORK = (Operation.DO, Operation.COLLECT, Operation.STRIKE)


@pytest.fixture(scope="module")
def step():
    return jax.jit(world.step, static_argnums=0)


def comparable(state: states.State) -> dict:
    """Returns a state as `Reference.state` does."""
    b = states.BORDER
    inside = np.asarray(state.cells).reshape(states.WIDTH, -1)[b:-b, b:-b]
    rows = np.asarray(state.objects)
    rows = rows[rows[:, states.KIND] > 0]
    objects = [
        (int(kind), int(cell) // states.WIDTH - b, int(cell) % states.WIDTH - b, int(health), int(timer))
        for kind, cell, health, timer, _ in rows
    ]
    return {
        "materials": np.asarray(states.material_of(inside)),
        "standing": np.asarray(states.kind_of(inside)),
        "objects": objects,
        "position": tuple(np.asarray(state.position).tolist()),
        "facing": tuple(things.DIRECTIONS[int(state.direction)].tolist()),
        "inventory": np.asarray(state.inventory).tolist(),
        "is_sleeping": bool(state.is_sleeping),
        "needs": np.asarray(state.needs).tolist(),
        "achievements": np.asarray(state.achievements).tolist(),
    }


def check_episode(rules: Rules, seed: int, num_steps: int, step) -> np.ndarray:
    """Plays and compares an episode, in which the player is given items now and then. Returns the achievements."""
    rng = np.random.default_rng(seed)
    first_step = int(rng.integers(300))
    reference = Reference(seed, rules, first_step, made := maps.make_map(seed))
    state = states.begin(*made)
    state = state._replace(num_steps=np.int32(first_step))  # type: ignore
    works = np.array([action.operation in _WORK for action in rules.actions])
    weights = np.where(works, 20 / works.sum(), 1 / np.sum(~works) * 10)
    way = 0
    for t in range(num_steps):
        if t % 25 == 0:
            inventory = np.concatenate([rng.integers(2, 10, 4), rng.integers(0, 10, NUM_ITEMS - 4)])
            state = state._replace(inventory=inventory.astype(np.int32))  # type: ignore
            reference.player.inventory.update(dict(zip(things.ITEMS, inventory.tolist())))
            state = _ripen(reference, _teleport(reference, state, rng), rng)
        if t % 8 == 0:
            way = rng.integers(1, 5)
        action = way if rng.random() < 0.3 else rng.choice(len(weights), p=weights / weights.sum())
        fitting = [i for i, one in enumerate(rules.actions) if one.noun and one.noun in reference.faced()]
        if fitting and rng.random() < 0.5:
            action = rng.choice(fitting)
        script: Script = make_script(rng)
        reference.step(int(action), script)
        state = step(rules, state, np.int32(action), script)
        want, have = reference.state(), comparable(state)
        for name in want:
            np.testing.assert_array_equal(
                have[name], want[name], f"{name}, seed {seed}, step {t}, {rules.actions[action].words}"
            )
    return np.asarray(state.achievements)


def _teleport(reference: Reference, state: states.State, rng: np.random.Generator) -> states.State:
    """Puts the player on a free cell, beside something that is rare if there is any."""
    b = states.BORDER
    inside = np.asarray(state.cells).reshape(states.WIDTH, -1)[b:-b, b:-b]
    materials, kinds = np.asarray(states.material_of(inside)), np.asarray(states.kind_of(inside))
    wanted = rng.permutation([*COLLECTED, things.LAVA, things.TABLE, things.FURNACE])
    free, creatures = things.IS_WALKABLE[materials] & (kinds == 0), kinds > things.PLAYER
    is_creature = rng.random() < 0.5 and creatures.any()
    rare = creatures if is_creature else materials == next(m for m in wanted if (materials == m).any())
    beside = free & np.any([np.roll(rare, shift, axis) for axis in (0, 1) for shift in (-1, 1)], axis=0)
    target = rng.choice(np.argwhere(beside if beside.any() else free))
    reference.env._world.move(reference.player, target)
    old, new = (int(states.cell_of(position)) for position in (np.asarray(state.position), target.astype(np.int32)))
    cells = np.array(state.cells)
    cells[old] &= 15
    cells[new] = states.pack(cells[new] & 15, things.PLAYER, 0)
    chunks = np.array(state.chunk_entered)
    chunk = int(states.chunk_of(new))
    chunks[chunk] = min(chunks[chunk], int(state.num_steps) * states.ENTRIES + states.ENTRIES - 1)
    return state._replace(position=target.astype(np.int32), cells=cells, chunk_entered=chunks)  # type: ignore


def _ripen(reference: Reference, state: states.State, rng: np.random.Generator) -> states.State:
    """Gives each plant an age near that of ripe ones."""
    objects = np.array(state.objects)
    plants = objects[objects[:, states.KIND] == things.PLANT]
    plants[:, states.TIMER] = ages = rng.integers(290, 310, len(plants))
    objects[objects[:, states.KIND] == things.PLANT] = plants
    grown = [thing for thing in reference.env._world.objects if hasattr(thing, "grown")]
    for plant, age in zip(grown, ages.tolist()):
        plant.grown = age
    return state._replace(objects=objects)  # type: ignore


@pytest.mark.parametrize(
    "name",
    [
        "Crafter-v1",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("CrafterReward-v1", "Crafter-Text-Reward")),
    ],
)
def test_steps_are_those_of_crafter(step, name):
    achieved = sum(check_episode(VARIANTS[name].rules, seed, 50, step) for seed in range(2))
    assert np.sum(achieved > 0) > 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Crafter-v1", "CrafterReward-v1", "Crafter-Text-Reward"])
def test_twenty_episodes_are_those_of_crafter(step, name):
    achieved = sum(check_episode(VARIANTS[name].rules, seed, 300, step) for seed in range(20))
    assert np.sum(achieved > 0) > 12  # those that need both table and furnace: `tests/golden`
