"""Downstream tasks in Crafter: goals that are to be reached in an order are the world's only reward."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.crafter.compositions import PAID, Task, find_task
from oni_jax.envs.crafter.env import find_crafter
from oni_jax.envs.crafter.state import WIDTH, State, cell_of, kind_of, material_of
from oni_jax.envs.crafter.things import DIRECTIONS, ITEM
from oni_jax.envs.device.base import DeviceEnv, Step
from oni_jax.envs.device.goals import same_meaning
from oni_jax.envs.device.wrapper import DeviceWrapper
from oni_jax.settings.worlds import CrafterConfig
from oni_jax.types import Array, EnvSpec

_AROUND = np.arange(-1, 2)[:, None] * WIDTH + np.arange(-1, 2)  # steps to 3 x 3 cells
# Neighbours that count as next to the middle one: the published rule leaves out one diagonal
BESIDE = ~np.eye(3, dtype=bool)


class Pursuit(NamedTuple):
    """A state, and how far the task is."""

    inner: Any
    stage: jax.Array  # [] int32; index of the goal to be reached next; the last one's, once all were reached
    is_solved: jax.Array  # [] bool; in this episode


@dataclasses.dataclass(frozen=True)
class Pursued(DeviceWrapper):
    """Crafter with a task, which pays instead of the world.

    Attributes:
      task: its goals in their order.
      pays_all: each goal pays 1; else the last.
      repeats: the episode goes on when the task is solved, and the last goal pays again; else it terminates.
    """

    task: Task
    pays_all: bool
    repeats: bool

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec._replace(episode_stats=(*self.env.spec.episode_stats, "success"))

    def inner(self, state: Pursuit) -> Any:
        return state.inner

    def reset(self, key: jax.Array) -> Pursuit:
        return Pursuit(self.env.reset(key), jnp.int32(0), jnp.bool_(False))

    def step(self, state: Pursuit, action: jax.Array, key: jax.Array) -> Step[Pursuit]:
        outcome = self.env.step(state.inner, action, key)
        reached = self.env.goals_reached(outcome.state, action, "strict")
        last = max(0, len(self.task.goals) - 1)
        is_last = state.stage == last
        counts = self.stages @ same_meaning(self.env.spec.goals, self.env.same_goals)
        advances = (jnp.asarray(counts)[state.stage] & reached).any()
        advances &= ~is_last | is_done_as_asked(self.task, find_crafter(self.env, outcome.state)[1])
        is_solved = advances & is_last
        reward = self.task.each_step + (advances if self.pays_all else is_solved)
        return outcome._replace(
            state=Pursuit(outcome.state, jnp.minimum(state.stage + advances, last), state.is_solved | is_solved),
            reward=jnp.float32(reward),
            terminated=outcome.terminated | is_solved & (not self.repeats),
        )

    def stats(self, state: Pursuit) -> jax.Array:
        return jnp.concatenate([self.env.stats(state.inner), state.is_solved[None].astype(jnp.float32)])

    def goal_pursued(self, state: Pursuit) -> jax.Array:
        return jnp.asarray(self.stages)[state.stage]

    @property
    def stages(self) -> np.ndarray:
        """The goal of each stage, as one of G [stages, G] bool; a stage without a goal where the task has none."""
        return np.array([[goal == stage for goal in self.env.spec.goals] for stage in self.task.goals or ("",)])


def is_done_as_asked(task: Task, state: State) -> Array:
    """Returns whether the last goal, reached by the step to this state, was reached as the task asks [] bool."""
    faced = cell_of(state.position + jnp.asarray(DIRECTIONS)[state.direction])
    around = state.cells[faced + _AROUND]
    if task.beside:
        things = jnp.where(kind_of(around) > 0, kind_of(around), material_of(around))
        return ((things == task.beside) & BESIDE).any()
    return state.inventory[ITEM[task.owned]] > 0 if task.owned else jnp.bool_(True)


def with_task(env: DeviceEnv, settings: CrafterConfig) -> DeviceEnv:
    """Returns the environment with the task that the settings name, if they name one."""
    if not settings.task:
        return env
    task = find_task(settings, env.spec.goals)
    return Pursued(env, task, settings.subgoals == PAID, settings.task_repeats)
