"""Device environments whose episodes have goals that a policy sees; see `envs.episode_goals`."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from oni_jax.envs.device.base import Step
from oni_jax.envs.device.wrapper import DeviceWrapper
from oni_jax.envs.episode_goals import feature_table, goal_probabilities, goal_spec
from oni_jax.settings.worlds import EpisodeGoalConfig
from oni_jax.types import EPISODE_GOAL, GOAL_FEATURES, EnvSpec

_DRAWS = 0x60A2  # folded into the key of a step


class GoalState(NamedTuple):
    inner: Any
    goal: jax.Array  # [] int32
    length: jax.Array  # [] int32; steps of the episode so far


@dataclasses.dataclass(frozen=True)
class WithEpisodeGoal(DeviceWrapper):
    settings: EpisodeGoalConfig

    @property
    def spec(self) -> EnvSpec:
        return goal_spec(self.env.spec, self.settings)

    def inner(self, state: GoalState) -> Any:
        return state.inner

    def reset(self, key: jax.Array) -> GoalState:
        return GoalState(self.env.reset(key), self._drawn(key), jnp.int32(0))

    def step(self, state: GoalState, action: jax.Array, key: jax.Array) -> Step[GoalState]:
        step, length, goal = self.env.step(state.inner, action, key), state.length + 1, state.goal
        if every := self.settings.steps:
            goal = jnp.where(length % every == 0, self._drawn(key), goal)
        return step._replace(state=GoalState(step.state, goal, length))

    def _drawn(self, key: jax.Array) -> jax.Array:
        logits = jnp.log(jnp.asarray(goal_probabilities(self.settings), jnp.float32))
        return jax.random.categorical(jax.random.fold_in(key, _DRAWS), logits).astype(jnp.int32)

    def observe(self, state: GoalState) -> dict[str, jax.Array]:
        features = jnp.asarray(feature_table(self.settings))[state.goal]
        return {**self.env.observe(state.inner), EPISODE_GOAL: state.goal, GOAL_FEATURES: features}
