"""Device environments behind the interface of host environments: one jitted step of N on the CPU."""

import copy
import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.base import StepOutput, VectorEnv
from oni_jax.envs.device.autoreset import Stepped, begin_all, step_all
from oni_jax.envs.device.base import DeviceEnv
from oni_jax.envs.device.episodes import Episode, environment_key, step_limit
from oni_jax.envs.device.saving import from_arrays, to_arrays
from oni_jax.envs.device.shown import Shown, TextTable, join_codes
from oni_jax.settings.fields import UserError
from oni_jax.types import EnvSpec


class DeviceVectorEnv(VectorEnv):
    """N device environments stepped on the CPU. See `VectorEnv`; episodes can be saved.

    Args:
      env: of one environment.
      num_envs: N.
      seed, first_index: environment i draws its episodes from a key of (seed, first_index + i).
      max_episode_steps: steps after which an episode is truncated, if it is not by the environment's limit.
      spec: with the observations to show; with all when left out.
      first_number: of the episodes that come first.
    """

    num_restarts = 0  # never replaced

    def __init__(
        self,
        env: DeviceEnv,
        num_envs: int,
        seed: int = 0,
        first_index: int = 0,
        max_episode_steps: int = 5000,
        spec: EnvSpec | None = None,
        first_number: int = 0,
    ):
        self.spec = spec or env.spec
        self.num_envs = num_envs
        self._env, self._seed, self._first_index, self._first_number = env, seed, first_index, first_number
        self._limit = step_limit(env, max_episode_steps)
        self._names = tuple(self.spec.observations)
        self._captions, self._events = TextTable(env.caption), TextTable(env.event)
        self._episodes: Episode | None = None

    def reset(self, out: StepOutput) -> None:
        with on_cpu():
            keys, numbers = self._first()
            numbers = numbers if self._episodes is None else self._episodes.number + 1
            self._episodes, shown = _start(self._env, self._names, keys, numbers)
        self._write(shown, out.records, out.texts.captions)
        out.texts.events[:] = [b""] * self.num_envs
        out.records["is_first"] = True
        for field in ("reward", "terminated", "truncated"):
            out.records[field] = 0

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        with on_cpu():
            self._episodes, *seen = self._step_all(actions)
        shown, stepped = jax.device_get(seen)
        outcome, final, ended = stepped.outcome, stepped.final, stepped.ended
        records = out.records
        for field in ("reward", "terminated", "truncated"):
            records[field] = getattr(outcome, field)
        records["is_first"] = ended
        if self.spec.has_events:
            out.texts.events[:] = self._events.look_up(join_codes(final.event_code), final.event_key)
        if ended.any():
            self._write(final, out.finals, out.texts.final_captions)
            for field in ("reward", "terminated", "truncated"):
                out.finals[field] = records[field]
            out.finals["is_first"] = False
            out.episode_stats[ended] = stepped.stats[ended]
        self._write(shown, records, out.texts.captions)

    def _step_all(self, actions: np.ndarray) -> tuple[Episode, Shown, Stepped]:
        return _step(self._env, self._names, self._episodes, actions, self._limit)

    def save(self) -> dict[str, np.ndarray]:
        return to_arrays({"episodes": self._episodes})

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        with on_cpu():
            like = jax.eval_shape(functools.partial(_start, self._env, ()), *self._first())[0]
            self._episodes = from_arrays(saved, {"episodes": like})["episodes"]

    def wrapped(self, wrapper: Callable[[DeviceEnv], DeviceEnv], spec: EnvSpec | None = None) -> Self:
        """Returns environments as these, each wrapped; `spec` says what they show. Before the first reset."""
        assert self._episodes is None
        other = copy.copy(self)
        other.spec = spec or self.spec
        other._env = wrapper(self._env)
        other._captions, other._events = TextTable(other._env.caption), TextTable(other._env.event)
        return other

    def _first(self) -> tuple[jax.Array, jax.Array]:
        """Returns the keys of the environments, and the numbers of their first episodes."""
        indices = jnp.arange(self._first_index, self._first_index + self.num_envs, dtype=jnp.uint32)
        numbers = jnp.full(self.num_envs, self._first_number, jnp.int32)
        return jax.vmap(functools.partial(environment_key, self._seed))(indices), numbers

    def _write(self, shown: Shown, records: np.ndarray, captions: list[bytes]) -> None:
        for name, values in shown.observations.items():
            records[name] = values
        if self.spec.has_captions:
            codes, keys = np.asarray(shown.caption_code), np.asarray(shown.caption_key)
            captions[:] = self._captions.look_up(join_codes(codes), keys)


_start = jax.jit(begin_all, static_argnums=(0, 1))
_step = jax.jit(step_all, static_argnums=(0, 1))


def on_cpu() -> AbstractContextManager:
    """Makes the CPU JAX's default device. Raises UserError: JAX may not use it."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        raise UserError("$JAX_PLATFORMS: add cpu at its end, where the environment is played") from None
