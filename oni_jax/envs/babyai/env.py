"""BabyAI-Text as a device environment."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.babyai import captions, display, rules, view
from oni_jax.envs.babyai.generator import generate
from oni_jax.envs.babyai.levels import LEVELS, SPEC, Level, sized
from oni_jax.envs.babyai.rules import State
from oni_jax.envs.device.base import DeviceEnv, Step
from oni_jax.envs.display import Terminal
from oni_jax.settings.worlds import EnvConfig


@dataclasses.dataclass(frozen=True)
class BabyAI(DeviceEnv[State]):
    """A level. Reward at success, which ends the episode: 1 - 0.9 steps / max_steps.

    Observations: `image` [7, 7, 3] uint8, MiniGrid's view by column and row (type, colour, state); `direction`.
    """

    level: Level
    spec = SPEC

    @property
    def max_episode_steps(self) -> int:
        return self.level.max_steps

    def reset(self, key: jax.Array) -> State:
        return generate(self.level, key)

    def step(self, state: State, action: jax.Array, key: jax.Array) -> Step[State]:
        state = rules.step(self.level, state, action)
        succeeded = self._succeeded(state)
        reward = jnp.asarray(rules.rewards(self.level)).at[state.num_steps].get(mode="clip")
        return Step(state, jnp.where(succeeded, reward, 0.0), succeeded)

    def observe(self, state: State) -> dict[str, jax.Array]:
        return {"image": view.image_of(view.view_of(state)), "direction": state.direction}

    def stats(self, state: State) -> jax.Array:
        return self._succeeded(state).astype(jnp.float32)[None]

    def caption_key(self, state: State) -> jax.Array:
        return view.caption_key(view.view_of(state))

    def caption(self, key: np.ndarray) -> bytes:
        return captions.caption(key)

    def event_key(self, state: State) -> jax.Array:
        return state.event

    def event(self, key: np.ndarray) -> bytes:
        return captions.event(key)

    def scene(self, state: State) -> display.Scene:
        return display.Scene(state, view.seen_positions(state), self.caption_key(state))

    def draw(self, scene: display.Scene) -> Terminal:
        return display.draw(self, scene)

    def mission(self, state: State) -> str:
        """Returns the episode's instruction, on the host."""
        targets, num_alike = np.asarray(state.targets).tolist(), np.asarray(state.num_alike).tolist()
        return captions.mission(self.level.family, targets, num_alike, bool(state.is_named_later))

    def _succeeded(self, state: State) -> jax.Array:
        return state.num_reached == len(self.level.targets)


def make_env(config: EnvConfig) -> BabyAI:
    """Makes one environment of a task, in the size asked for."""
    settings = config.babyai
    return BabyAI(sized(LEVELS[config.root_env], settings.size, settings.num_distractors))
