"""Recorded runs of ELLM's downstream tasks in Crafter (arXiv 2302.06692): what each step paid, and its stage."""

import dataclasses
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.crafter.compositions import COMPOSED, NAMED
from oni_jax.envs.crafter.env import make_env
from oni_jax.envs.crafter.rules import ELLM_ACTIONS
from oni_jax.envs.crafter.state import WIDTH, State, begin, cell_of, pack
from oni_jax.envs.crafter.tasks import Pursued, with_task
from oni_jax.envs.crafter.things import DIRECTIONS, ITEM, PLANT
from oni_jax.envs.device.base import Step
from oni_jax.envs.device.wrapper import DeviceWrapper
from oni_jax.envs.registry import find_environment
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import CrafterConfig, EnvConfig
from tests.golden import data_file

RECORDED = json.loads(data_file("ellm_single_task.json").read_text())
MODES = {False: "hidden", True: "paid", "reward_last": "shown"}
QUICK = (1, 2, 4, 5, 6, 11, 12, 13, 14)  # quick runs: each mode, both ends, and all that a task can ask
ON_A_PLANT = 100  # added to the material


class Row(NamedTuple):
    """A recorded step, and the state after it as far as it was recorded."""

    inner: State
    number: jax.Array


@dataclasses.dataclass(frozen=True)
class Replayed(DeviceWrapper):
    """Crafter whose steps are those of a recorded run."""

    run: int

    @property
    def rows(self) -> dict[str, np.ndarray]:
        columns = zip(*RECORDED["runs"][self.run]["steps"])
        return {name: np.array(column) for name, column in zip(RECORDED["columns"], columns)}

    def inner(self, state: Row) -> State:
        return state.inner

    def reset(self, key: jax.Array) -> Row:
        nothing = jnp.zeros(1, jnp.uint8)
        return Row(begin(jnp.ones((64, 64), jnp.uint8), nothing, jnp.zeros((1, 2), jnp.uint8)), jnp.int32(-1))

    def step(self, state: Row, action: jax.Array, key: jax.Array) -> Step[Any]:
        rows, number, inner = self.rows, state.number + 1, state.inner
        around = jnp.asarray(rows["around_target"])[number]
        faced = cell_of(inner.position + jnp.asarray(DIRECTIONS)[inner.direction])
        at = faced + np.arange(-1, 2)[:, None] * WIDTH + np.arange(-1, 2)
        cells = inner.cells.at[at].set(pack(around % ON_A_PLANT, jnp.where(around >= ON_A_PLANT, PLANT, 0), 0))
        owned = jnp.asarray(rows["wood_pickaxe_after"])[number]
        inventory = inner.inventory.at[ITEM["wood_pickaxe"]].set(owned)
        return Step(Row(inner._replace(cells=cells, inventory=inventory), number), jnp.float32(7), jnp.bool_(False))

    def goals_reached(self, state: Row, action: jax.Array, success: str) -> jax.Array:
        assert success == "strict"
        took_effect = jnp.asarray(self.rows["eval_success"])[state.number]
        return (jnp.arange(len(ELLM_ACTIONS["harder"])) == action) & took_effect


@pytest.mark.parametrize(
    "number",
    [i if i in QUICK else pytest.param(i, marks=pytest.mark.slow) for i in range(len(RECORDED["runs"]))],
)
def test_recorded_tasks(number):
    run = RECORDED["runs"][number]
    name, mode, ends = run["task"], MODES[run["hierarchical"]], run["end_on_success"]
    settings = CrafterConfig(task=name, subgoals=mode, task_repeats=not ends)
    replayed = Replayed(make_env(EnvConfig(root_env="CrafterTextEnv-v1")), number)
    env = with_task(replayed, settings)
    assert isinstance(env, Pursued)
    if mode != "hidden":
        assert list(env.task.goals) == run["composition"]
    step, state, rows = jax.jit(env.step), env.reset(jax.random.key(0)), replayed.rows
    # As published, no tree counts on the way to the second table, so that nothing solves the task
    num_steps = 10 if (name, mode) == ("make workshop", "shown") else len(rows["action"])
    for t, action in enumerate(rows["action"][:num_steps]):
        assert mode == "hidden" or int(state.stage) == rows["subtask_before"][t]
        if mode != "hidden":
            shown = np.array(env.spec.goals)[np.asarray(env.goal_pursued(state))]
            assert list(shown) == [run["composition"][int(state.stage)]]
        outcome = step(state, jnp.int32(action), jax.random.key(1))
        state = outcome.state
        assert float(outcome.reward) == pytest.approx(rows["reward"][t]), (name, t)
        is_last = t == len(rows["action"]) - 1
        # The recorded ones also ended after 160 steps
        assert bool(outcome.terminated) == (ends and is_last and rows["reward"][t] > 0)
    paid = rows["reward"] > 0
    if name != "survival":
        assert float(env.stats(state)[-1]) == (paid.sum() >= len(run["composition"]) if mode == "paid" else paid.any())


def test_recorded_compositions():
    """Tasks as lists of goals, but for one that names no action (`plant grass`), and names of whole tasks."""
    recorded = json.loads(data_file("ellm_goal_compositions.json").read_text())
    ours = {name: (NAMED[name].goals if name in NAMED else COMPOSED.get(name, (name,))) for name in recorded}
    differing = {name for name, goals in recorded.items() if goals != list(ours[name])}
    assert differing == {"plant row", "chop grass with wood pickaxe", "survival"}
    assert set(NAMED) | set(COMPOSED) <= set(recorded)


@pytest.mark.parametrize("task", ["fly", "attack zombies"])
def test_unknown_tasks(task):
    config = EnvConfig(root_env="CrafterTextEnv-v1", crafter=CrafterConfig(task=task))
    with pytest.raises(UserError, match="--crafter_task"):
        find_environment(config).make_spec(config)


def test_the_quick_runs_are_of_each_kind():
    runs = RECORDED["runs"]

    def kinds(numbers):
        of_runs = {(MODES[runs[i]["hierarchical"]], runs[i]["end_on_success"]) for i in numbers}
        asked = {(x.beside > 0, x.owned, x.each_step) for i in numbers if (x := NAMED.get(runs[i]["task"]))}
        return of_runs, asked

    assert kinds(QUICK) == kinds(range(len(runs)))
