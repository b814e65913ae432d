"""Device environments around others."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.device.base import DeviceEnv, Step
from oni_jax.envs.display import Terminal
from oni_jax.types import EnvSpec


@dataclasses.dataclass(frozen=True)
class DeviceWrapper(DeviceEnv[Any]):
    """An environment that does what `env` does. What differs is overridden."""

    env: DeviceEnv

    def inner(self, state: Any) -> Any:
        """Returns the state of `env`."""
        return state

    @property
    def spec(self) -> EnvSpec:  # type: ignore
        return self.env.spec

    @property
    def max_episode_steps(self) -> int | None:
        return self.env.max_episode_steps

    def reset(self, key: jax.Array) -> Any:
        return self.env.reset(key)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Step[Any]:
        return self.env.step(state, action, key)

    def observe(self, state: Any) -> dict[str, jax.Array]:
        return self.env.observe(self.inner(state))

    def stats(self, state: Any) -> jax.Array:
        return self.env.stats(self.inner(state))

    def caption_key(self, state: Any) -> jax.Array:
        return self.env.caption_key(self.inner(state))

    def caption_code(self, state: Any) -> jax.Array:
        return self.env.caption_code(self.inner(state))

    def caption(self, key: np.ndarray) -> bytes:
        return self.env.caption(key)

    @property
    def num_caption_features(self) -> int:  # type: ignore
        return self.env.num_caption_features

    def caption_features(self, state: Any) -> jax.Array:
        return self.env.caption_features(self.inner(state))

    def read_caption(self, caption: bytes) -> np.ndarray | None:
        return self.env.read_caption(caption)

    def event_key(self, state: Any) -> jax.Array:
        return self.env.event_key(self.inner(state))

    def event_code(self, state: Any) -> jax.Array:
        return self.env.event_code(self.inner(state))

    def event(self, key: np.ndarray) -> bytes:
        return self.env.event(key)

    def scene(self, state: Any) -> Any:
        return self.env.scene(self.inner(state))

    def draw(self, scene: Any) -> Terminal | None:
        return self.env.draw(scene)

    @property
    def same_goals(self) -> Sequence[tuple[str, ...]]:  # type: ignore
        return self.env.same_goals

    @property
    def attainable_goals(self) -> Sequence[str]:  # type: ignore
        return self.env.attainable_goals

    def goals_reached(self, state: Any, action: jax.Array, success: str) -> jax.Array:
        return self.env.goals_reached(self.inner(state), action, success)

    def goals_possible(self, state: Any) -> jax.Array:
        return self.env.goals_possible(self.inner(state))

    def goal_pursued(self, state: Any) -> jax.Array:
        return self.env.goal_pursued(self.inner(state))

    def suggesting(self, table: Any, model: Any = None) -> DeviceEnv:
        return dataclasses.replace(self, env=self.env.suggesting(table, model))


@dataclasses.dataclass(frozen=True)
class EventCaptions(DeviceWrapper):
    """An environment whose captions are its events, see `envs.event_captions`. At an episode's start the event has to
    be the empty one.
    """

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec._replace(has_captions=True, caption_size=self.env.spec.event_size)

    def caption_key(self, state: Any) -> jax.Array:
        return self.event_key(state)

    def caption_code(self, state: Any) -> jax.Array:
        return self.event_code(state)

    def caption(self, key: np.ndarray) -> bytes:
        return self.event(key)

    num_caption_features: int = 0  # the features of `env` describe states, not events


class Stacked(NamedTuple):
    """A state, and its newest frames, the oldest first."""

    inner: Any
    frames: jax.Array  # [H, W, C * count]


@dataclasses.dataclass(frozen=True)
class FrameStack(DeviceWrapper):
    """An environment that shows the last frames of a picture, stacked as channels; an episode's first fills the stack.

    Attributes:
      name: name of the observation, [H, W, C]; with the frames, [H, W, C * count], the oldest first.
      count: count of frames.
    """

    name: str
    count: int

    @property
    def spec(self) -> EnvSpec:
        spec = self.env.spec
        height, width, channels = spec.observations[self.name].shape
        stacked = spec.observations[self.name]._replace(shape=(height, width, channels * self.count))
        return spec._replace(observations={**spec.observations, self.name: stacked})

    def inner(self, state: Stacked) -> Any:
        return state.inner

    def reset(self, key: jax.Array) -> Stacked:
        state = self.env.reset(key)
        return Stacked(state, jnp.tile(self.env.observe(state)[self.name], self.count))

    def step(self, state: Stacked, action: jax.Array, key: jax.Array) -> Step[Stacked]:
        step = self.env.step(state.inner, action, key)
        newest = self.env.observe(step.state)[self.name]
        frames = jnp.concatenate([state.frames[..., newest.shape[-1] :], newest], axis=-1)
        return step._replace(state=Stacked(step.state, frames))

    def observe(self, state: Stacked) -> dict[str, jax.Array]:
        return {**self.env.observe(state.inner), self.name: state.frames}
