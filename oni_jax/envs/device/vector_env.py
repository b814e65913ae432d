"""Device environments behind the interface of host environments: one jitted step of N on the CPU."""

import functools
import multiprocessing
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.base import StepOutput, VectorEnv
from oni_jax.envs.device.base import DeviceEnv
from oni_jax.envs.device.episodes import (
    PRNG,
    Episode,
    advance,
    begin_episode,
    environment_key,
    episode_stats,
    step_limit,
)
from oni_jax.envs.device.resets import default_chunk, reset_ended
from oni_jax.types import EnvSpec

MAX_KNOWN = 200_000  # texts in a table; beyond, it is cleared


class Shown(NamedTuple):
    """The part of N states that the host reads."""

    observations: dict[str, jax.Array]  # each [N, ...]
    caption_keys: jax.Array  # [N, M] uint8; see `DeviceEnv.caption_key`
    event_keys: jax.Array  # [N, M'] uint8


class DeviceVectorEnv(VectorEnv):
    """N device environments stepped on the CPU. See `VectorEnv`; episodes can be saved.

    Args:
      env: of one environment.
      num_envs: N.
      seed, first_index: environment i draws its episodes from a key of (seed, first_index + i).
      max_episode_steps: steps after which an episode is truncated, if it is not by the environment's own limit.
      spec: with the observations to show; with all when left out.
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
    ):
        self.spec = spec or env.spec
        self.num_envs = num_envs
        self._env, self._seed, self._first_index = env, seed, first_index
        self._limit = step_limit(env, max_episode_steps)
        self._names = tuple(self.spec.observations)
        self._captions, self._events = TextTable(env.caption), TextTable(env.event)
        self._episodes: Episode | None = None

    def reset(self, out: StepOutput) -> None:
        with _on_cpu():
            indices = jnp.arange(self._first_index, self._first_index + self.num_envs, dtype=jnp.uint32)
            keys = jax.vmap(functools.partial(environment_key, self._seed))(indices)
            numbers = jnp.zeros(self.num_envs, jnp.int32) if self._episodes is None else self._episodes.number + 1
            self._episodes, shown = _start(self._env, self._names, keys, numbers)
        self._write(shown, out.records, out.texts.captions)
        out.texts.events[:] = [b""] * self.num_envs
        out.records["is_first"] = True
        for field in ("reward", "terminated", "truncated"):
            out.records[field] = 0

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        with _on_cpu():
            self._episodes, stepped = _step(self._env, self._names, self._episodes, actions, self._limit)
        outcome, final, stats, shown = jax.device_get(stepped)
        ended = outcome.terminated | outcome.truncated
        records = out.records
        for field in ("reward", "terminated", "truncated"):
            records[field] = getattr(outcome, field)
        records["is_first"] = ended
        if self.spec.has_events:
            out.texts.events[:] = self._events.look_up(final.event_keys)
        if ended.any():
            self._write(final, out.finals, out.texts.final_captions)
            for field in ("reward", "terminated", "truncated"):
                out.finals[field] = records[field]
            out.finals["is_first"] = False
            out.episode_stats[ended] = stats[ended]
        self._write(shown, records, out.texts.captions)

    def save(self) -> dict[str, np.ndarray]:
        leaves, _ = jax.tree_util.tree_flatten_with_path(self._episodes)
        return {_name(path): np.asarray(jax.random.key_data(x) if _is_key(x) else x) for path, x in leaves}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        with _on_cpu():
            shapes = jax.eval_shape(functools.partial(begin_episode, self._env), environment_key(0, 0), 0)
            self._episodes = jax.tree_util.tree_map_with_path(
                lambda path, like: _array(saved[_name(path)], _is_key(like)), shapes
            )

    def _write(self, shown: Shown, records: np.ndarray, captions: list[bytes]) -> None:
        for name, values in shown.observations.items():
            records[name] = values
        if self.spec.has_captions:
            captions[:] = self._captions.look_up(np.asarray(shown.caption_keys))


class TextTable:
    """Texts by their keys, each made once.

    Args:
      make: makes the text of a key [M] uint8.
      max_known: size at which the table is cleared.
    """

    def __init__(self, make: Callable[[np.ndarray], bytes], max_known: int = MAX_KNOWN):
        self._make, self._max_known = make, max_known
        self._texts: dict[bytes, bytes] = {}

    def look_up(self, keys: np.ndarray) -> list[bytes]:
        """Returns the texts of keys [N, M] uint8."""
        if len(self._texts) > self._max_known:
            self._texts.clear()
        return [self._look_up(key) for key in keys]

    def _look_up(self, key: np.ndarray) -> bytes:
        known = key.tobytes()
        text = self._texts.get(known)
        if text is None:
            text = self._texts[known] = self._make(key)
        return text


class _Stepped(NamedTuple):
    outcome: Any  # `Outcome`, each [N]
    final: Shown  # of the states that the actions led to
    stats: jax.Array  # [N, K] float32; likewise
    shown: Shown  # after the resets


@functools.partial(jax.jit, static_argnums=(0, 1))
def _start(env: DeviceEnv, names: tuple[str, ...], keys: jax.Array, numbers: jax.Array) -> tuple[Episode, Shown]:
    episodes = jax.vmap(functools.partial(begin_episode, env))(keys, numbers)
    return episodes, _show(env, names, episodes)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _step(
    env: DeviceEnv, names: tuple[str, ...], episodes: Episode, actions: jax.Array, limit: jax.Array
) -> tuple[Episode, _Stepped]:
    moved, outcome = jax.vmap(functools.partial(advance, env), in_axes=(0, 0, None))(episodes, actions, limit)
    stats = jax.vmap(functools.partial(episode_stats, env))(moved)
    ended = outcome.terminated | outcome.truncated
    episodes = reset_ended(env, moved, ended, default_chunk(len(ended)))
    return episodes, _Stepped(outcome, _show(env, names, moved), stats, _show(env, names, episodes))


def _show(env: DeviceEnv, names: tuple[str, ...], episodes: Episode) -> Shown:
    def show(state: Any) -> Shown:
        observations = env.observe(state)
        return Shown({name: observations[name] for name in names}, env.caption_key(state), env.event_key(state))

    return jax.vmap(show)(episodes.state)


def _name(path: tuple[Any, ...]) -> str:
    return f"episodes{jax.tree_util.keystr(path)}"


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _array(saved: np.ndarray, is_key: bool) -> jax.Array:
    return jax.random.wrap_key_data(jnp.array(saved), impl=PRNG) if is_key else jnp.array(saved)


def _on_cpu() -> AbstractContextManager:
    """Makes the CPU JAX's default device. In a child process, such as an actor's, no accelerator is initialised."""
    if multiprocessing.parent_process() is not None:
        jax.config.update("jax_platforms", "cpu")
    return jax.default_device(jax.local_devices(backend="cpu")[0])
