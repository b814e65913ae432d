"""Device environments with events for captions; see `envs.event_captions`."""

import dataclasses
from typing import Any

import jax
import numpy as np

from oni_jax.envs.device.base import DeviceEnv, Step
from oni_jax.types import EnvSpec


@dataclasses.dataclass(frozen=True)
class DeviceEventCaptions(DeviceEnv[Any]):
    """An environment whose captions are its events. At an episode's start its event has to be the empty one."""

    env: DeviceEnv

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec._replace(has_captions=True, caption_size=self.env.spec.event_size)

    @property
    def max_episode_steps(self) -> int | None:
        return self.env.max_episode_steps

    def reset(self, key: jax.Array) -> Any:
        return self.env.reset(key)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Step[Any]:
        return self.env.step(state, action, key)

    def observe(self, state: Any) -> dict[str, jax.Array]:
        return self.env.observe(state)

    def stats(self, state: Any) -> jax.Array:
        return self.env.stats(state)

    def caption_key(self, state: Any) -> jax.Array:
        return self.env.event_key(state)

    def caption_code(self, state: Any) -> jax.Array:
        return self.env.event_code(state)

    def caption(self, key: np.ndarray) -> bytes:
        return self.env.event(key)

    def event_key(self, state: Any) -> jax.Array:
        return self.env.event_key(state)

    def event_code(self, state: Any) -> jax.Array:
        return self.env.event_code(state)

    def event(self, key: np.ndarray) -> bytes:
        return self.env.event(key)
