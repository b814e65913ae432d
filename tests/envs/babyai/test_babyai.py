"""Rules, levels and captions of BabyAI-Text beyond the recordings, which tests/golden/test_babyai.py plays again."""

import functools
import json
from collections import Counter, deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oni_jax.envs.babyai import captions, generator, rules, view
from oni_jax.envs.babyai.cells import EMPTY, VACATED, WALL, cell_of, is_object
from oni_jax.envs.babyai.env import BabyAI
from oni_jax.envs.babyai.levels import ACTION_WORDS, BLUE_BOX, LEVELS, PREFIX, RED_BALL, Action, Family, Level
from oni_jax.envs.babyai.rules import DIRECTIONS, NOTHING, State
from tests.envs.babyai import level_statistics
from tests.envs.babyai.level_statistics import Starts

SIZE = 8
GREY_KEY = cell_of("grey", "key")
PAIR = Level(Family.GO_TO, ((RED_BALL,), (BLUE_BOX,)), SIZE, 6)
PICK_UP = Level(Family.PICK_UP, ((RED_BALL,),), SIZE, 6)
step = jax.jit(rules.step, static_argnums=0)
view_of = jax.jit(view.view_of)
caption_keys = jax.jit(jax.vmap(lambda state: view.caption_key(view.view_of(state))))


@functools.partial(jax.jit, static_argnums=(0, 2))
def _play(level: Level, key: jax.Array, num_steps: int) -> tuple[State, State]:
    start_key, action_key = jax.random.split(key)
    start = generator.generate(level, start_key)

    def advance(state: State, action: jax.Array) -> tuple[State, State]:
        state = rules.step(level, state, action)
        return state, state

    return start, jax.lax.scan(advance, start, jax.random.randint(action_key, (num_steps,), 0, len(Action)))[1]


def play(level: Level, seed: int, num_steps: int = 200) -> tuple[State, State]:
    """The start and the [num_steps] states that random actions lead to; success does not end it."""
    return jax.device_get(_play(level, jax.random.key(seed), num_steps))


def state_with(objects: dict[tuple[int, int], int], position=(1, 1), direction=0, targets=(RED_BALL,)) -> State:
    grid = np.pad(np.full((SIZE - 2, SIZE - 2), EMPTY, np.uint8), 1, constant_values=WALL)
    for where, cell in objects.items():
        grid[where] = cell
    return State(
        grid=jnp.asarray(grid),
        position=jnp.array(position, jnp.int32),
        direction=jnp.int32(direction),
        carried=jnp.uint8(NOTHING),
        targets=jnp.array(targets, jnp.uint8),
        num_alike=jnp.array([np.sum(grid == target) for target in targets], jnp.int32),
        is_named_later=jnp.bool(False),
        num_reached=jnp.int32(0),
        num_steps=jnp.int32(0),
        event=jnp.zeros(3, jnp.uint8),
    )


def act(level: Level, state: State, *actions: Action) -> State:
    for action in actions:
        state = step(level, state, int(action))
    return state


seeds = st.integers(0, 2**31 - 1)


@given(seeds)
def test_the_agent_stands_on_empty_cells_and_only_boxes_are_lost(seed):
    start, states = play(PAIR, seed)
    before = Counter(start.grid[is_object(start.grid)].tolist())
    rows = np.arange(len(states.direction))
    under_agent = states.grid[(rows, *states.position.T)]
    assert ((under_agent == EMPTY) | (under_agent >= VACATED)).all()
    for grid, carried in zip(states.grid, states.carried.tolist()):
        now = Counter(grid[is_object(grid)].tolist()) + Counter([carried] if carried else [])
        assert not now - before  # nothing new
        assert all(cell & 7 == 7 for cell in before - now)
        before = now
        assert (grid[[0, -1]] == WALL).all() and (grid[:, [0, -1]] == WALL).all()


@given(seeds, st.integers(0, 3))
def test_the_view_of_a_turned_world_is_the_same(seed, turns):
    _, states = play(PAIR, seed)
    state = jax.tree.map(lambda x: x[-1], states)
    turned = state
    for _ in range(turns):  # (x, y) -> (S - 1 - y, x): a quarter clockwise, as a right turn is
        turned = turned._replace(
            grid=np.rot90(turned.grid, 1).copy(),
            position=np.array([SIZE - 1 - turned.position[1], turned.position[0]], np.int32),
            direction=(turned.direction + 1) % 4,
        )
    np.testing.assert_array_equal(view_of(state), view_of(turned))


@given(seeds)
def test_equal_captions_have_equal_keys(seed):
    _, states = play(PAIR, seed)
    keys = np.asarray(caption_keys(states))
    texts = [captions.caption(key) for key in keys]
    assert len({*texts}) == len({key.tobytes() for key in keys}) == len({*zip(texts, map(bytes, keys))})


def test_a_view_outside_of_the_room_is_unseen():
    cells = np.asarray(view_of(state_with({(3, 1): GREY_KEY}, direction=0)))
    assert cells[3].tolist() == [WALL, EMPTY, EMPTY, EMPTY, GREY_KEY, EMPTY, EMPTY]
    assert cells[2].tolist() == [WALL] * 7 and not cells[:2].any()


def test_a_carried_object_is_seen_and_described_first():
    state = act(PICK_UP, state_with({(2, 1): GREY_KEY}), Action.PICKUP)
    assert int(state.carried) == GREY_KEY and int(view_of(state)[view.AGENT]) == GREY_KEY
    assert captions.caption(np.asarray(view.caption_key(view_of(state)))).startswith(b"You carry a grey key. You see")


def test_one_object_is_carried_and_it_is_dropped_on_empty_cells_only():
    state = act(PICK_UP, state_with({(2, 1): GREY_KEY, (1, 2): RED_BALL}), Action.PICKUP, Action.RIGHT, Action.PICKUP)
    assert (int(state.carried), int(state.num_reached)) == (GREY_KEY, 0)
    state = act(PICK_UP, state, Action.DROP)
    assert (int(state.carried), int(state.grid[1, 2])) == (GREY_KEY, RED_BALL)
    state = act(PICK_UP, state, Action.LEFT, Action.DROP)
    assert (int(state.carried), int(state.grid[2, 1])) == (NOTHING, GREY_KEY)
    state = act(PICK_UP, state, Action.RIGHT, Action.PICKUP)
    assert (int(state.carried), int(state.num_reached)) == (RED_BALL, 1)


def test_a_box_vanishes_when_toggled_and_nothing_else_does():
    state = act(PICK_UP, state_with({(2, 1): BLUE_BOX, (1, 2): RED_BALL}), Action.TOGGLE, Action.RIGHT, Action.TOGGLE)
    assert not is_object(np.asarray(state.grid))[2, 1] and int(state.grid[1, 2]) == RED_BALL
    state = act(PICK_UP, state, Action.LEFT, Action.FORWARD)
    assert state.position.tolist() == [2, 1]


def test_objects_and_walls_are_in_the_way():
    state = act(PICK_UP, state_with({(2, 1): BLUE_BOX}), Action.FORWARD, Action.LEFT, Action.FORWARD, Action.DONE)
    assert state.position.tolist() == [1, 1] and int(state.direction) == 3 and int(state.num_steps) == 4


def test_targets_are_reached_in_order():
    objects = {(2, 1): BLUE_BOX, (1, 2): RED_BALL}
    state = act(PAIR, state_with(objects, targets=(RED_BALL, BLUE_BOX)), Action.DONE)
    assert int(state.num_reached) == 0
    state = act(PAIR, state, Action.RIGHT)
    assert int(state.num_reached) == 1
    state = act(PAIR, state, Action.LEFT)
    assert int(state.num_reached) == 2


@pytest.mark.parametrize("taken", [Action.PICKUP, Action.TOGGLE])
def test_former_position_of_a_target_counts_until_an_object_is_dropped(taken):
    objects = {(2, 1): BLUE_BOX, (1, 2): RED_BALL}
    state = act(PAIR, state_with(objects, targets=(RED_BALL, BLUE_BOX)), taken, Action.RIGHT)
    assert int(act(PAIR, state, Action.LEFT).num_reached) == 2
    # A drop that fails refreshes the positions too
    assert int(act(PAIR, state, Action.DROP, Action.LEFT).num_reached) == 1


def test_reward_falls_with_the_level_s_steps():
    env = BabyAI(PICK_UP)
    state = state_with({(2, 1): RED_BALL})._replace(num_steps=jnp.int32(SIZE**2 - 1))
    result = env.step(state, jnp.int32(Action.PICKUP), jax.random.key(0))
    assert bool(result.terminated) and float(result.reward) == np.float32(1 - 0.9) and float(env.stats(result.state)[0])
    result = env.step(state, jnp.int32(Action.DONE), jax.random.key(0))
    assert not result.terminated and not result.reward and not float(env.stats(result.state)[0])


def test_the_levels_are_the_published_ones():
    assert len(LEVELS) == 17 and len(ACTION_WORDS) == len(Action)
    sizes = Counter((level.size, level.num_distractors, level.max_steps) for level in LEVELS.values())
    expected = {(20, 7, 400): 5, (23, 12, 529): 2, (25, 15, 625): 2, (28, 20, 784): 2, (30, 25, 900): 2}
    assert sizes == {**expected, (20, 7, 800): 2, (20, 8, 400): 2}
    wrongly_named = LEVELS[PREFIX + "GoTo-PurpleBallGreenKey-S20"]
    assert wrongly_named.targets == ((cell_of("purple", "ball"),), (cell_of("purple", "box"),))


def test_missions():
    alike, targets = (1, 2), (RED_BALL, BLUE_BOX)
    assert captions.mission(Family.GO_TO, targets, alike, False) == "go to the red ball, then go to a blue box"
    assert captions.mission(Family.GO_TO, targets, alike, True) == "go to a blue box after you go to the red ball"
    assert captions.mission(Family.PICK_UP, targets[:1], alike[1:], False) == "pick up a red ball"


@functools.partial(jax.jit, static_argnums=(0, 2))
def _starts(level: Level, key: jax.Array, num_levels: int) -> State:
    return jax.vmap(functools.partial(generator.generate, level))(jax.random.split(key, num_levels))


def starts_of(level: Level, num_levels: int) -> Starts:
    drawn = jax.device_get(_starts(level, jax.random.key(1), num_levels))
    return Starts(drawn.grid, drawn.position, drawn.direction, drawn.targets, drawn.is_named_later)


@pytest.mark.parametrize("level", [PAIR, Level(Family.GO_TO_LOCAL, ((RED_BALL,),), SIZE, 12)])
def test_starts(level):
    starts = starts_of(level, 500)
    rows = np.arange(500)
    assert (is_object(starts.grids).sum((1, 2)) == level.num_distractors + len(level.targets)).all()
    assert (starts.grids[(rows, *starts.positions.T)] == EMPTY).all()
    assert not is_object(starts.grids[(rows, *(starts.positions + DIRECTIONS[starts.directions]).T)]).any()
    is_local = level.family is Family.GO_TO_LOCAL
    near = starts.positions if is_local else np.full_like(starts.positions, SIZE // 2)
    for offset in (np.zeros(2, int), *DIRECTIONS):
        assert not is_object(starts.grids[(rows, *(near + offset).T)]).any()
    assert all(np.isin(starts.targets[:, i], cells).all() for i, cells in enumerate(level.targets))


def reachable(grid: np.ndarray, start: tuple[int, int]) -> bool:
    """By a search in Python."""
    reached, queue = {start}, deque([start])
    while queue:
        x, y = queue.popleft()
        if grid[x, y] != EMPTY:
            continue
        new = [(x + dx, y + dy) for dx, dy in DIRECTIONS.tolist() if (x + dx, y + dy) not in reached]
        reached.update(new)
        queue.extend(new)
    return all(tuple(where) in reached for where in np.argwhere(is_object(grid)).tolist())


all_reachable = jax.jit(generator.all_reachable)


@given(arrays(bool, (SIZE - 2, SIZE - 2)))
def test_reachability(occupied):
    grid = np.pad(np.where(occupied, GREY_KEY, EMPTY).astype(np.uint8), 1, constant_values=WALL)
    grid[1, 1] = EMPTY
    assert bool(all_reachable(grid, np.array([1, 1]))) == reachable(grid, (1, 1))


def test_distinct_numbers_are_drawn_uniformly():
    draw = jax.vmap(lambda key: generator.draw_distinct(key, 6, jnp.array([4, 99, 1]), 2))
    drawn = Counter(map(tuple, np.asarray(draw(jax.random.split(jax.random.key(0), 12_000))).tolist()))
    free = (0, 2, 3, 5)
    assert {*drawn} == {(a, b) for a in free for b in free if a != b}
    assert sum((count - 1000) ** 2 / 1000 for count in drawn.values()) < 31.3  # chi-square, 11 degrees, p = 0.001


def compare_with_minigrid(name: str, num_levels: int) -> None:
    recorded = json.loads(level_statistics.FILE.read_text())
    ours = level_statistics.summary(starts_of(LEVELS[name], num_levels))
    scores = level_statistics.z_scores(ours, recorded["levels"][name], num_levels, recorded["num_levels"])
    assert {feature: z for feature, z in scores.items() if abs(z) > 3.5} == {}


def test_levels_are_distributed_as_minigrid_s():
    compare_with_minigrid(level_statistics.NAMES[0], 1000)


@pytest.mark.slow
@pytest.mark.parametrize("name", level_statistics.NAMES)
def test_many_levels_are_distributed_as_minigrid_s(name):
    compare_with_minigrid(name, level_statistics.NUM_LEVELS)
