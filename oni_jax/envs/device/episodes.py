"""An environment's episodes: keys, step limit, and the statistics that every environment has."""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from oni_jax.envs.device.base import DeviceEnv

PRNG = "threefry2x32"  # named, since episodes are to be the same whatever JAX's default is
_WORD = 2**32


class Episode(NamedTuple):
    """The running episode of one environment; with leaves [N, ...], of N."""

    state: Any  # the environment's
    key: jax.Array  # [] of the environment: the same in all its episodes
    number: jax.Array  # [] int32; episodes before this one
    length: jax.Array  # [] int32; steps so far
    total_reward: jax.Array  # [] float32; so far


class Outcome(NamedTuple):
    """An action's, as in `base.STEP_FIELDS`."""

    reward: jax.Array  # [] float32
    terminated: jax.Array  # [] bool
    truncated: jax.Array  # [] bool


def environment_key(seed: int, index: int | jax.Array) -> jax.Array:
    """Returns the key of the environment with this index among all with this seed, neither of them negative."""
    key = jax.random.fold_in(jax.random.key(seed % _WORD, impl=PRNG), seed // _WORD % _WORD)
    return jax.random.fold_in(key, index)


def begin_episode(env: DeviceEnv, key: jax.Array, number: int | jax.Array) -> Episode:
    """Starts the episode with this number, from 0 on, of the environment with this key: it depends on nothing else."""
    return Episode(env.reset(_step_key(key, number, 0)), key, jnp.int32(number), jnp.int32(0), jnp.float32(0))


def _step_key(key: jax.Array, number: int | jax.Array, length: int | jax.Array) -> jax.Array:
    return jax.random.fold_in(jax.random.fold_in(key, number), length)


def step_limit(env: DeviceEnv, max_episode_steps: int) -> int:
    """Returns the steps after which an episode is cut off: the environment's limit, or this one if it is less."""
    return min(env.max_episode_steps or max_episode_steps, max_episode_steps)


def advance(env: DeviceEnv, episode: Episode, action: jax.Array, limit: int | jax.Array) -> tuple[Episode, Outcome]:
    """Takes a step of one environment, and no reset: an ended episode comes back in its final state.

    Args:
      env: of one environment.
      episode: a running one.
      action: [] int32.
      limit: steps after which the episode is truncated; one that terminates at the same step counts as terminated.
    """
    chex.assert_rank(action, 0)
    length = episode.length + 1
    step = env.step(episode.state, action, _step_key(episode.key, episode.number, length))
    episode = episode._replace(state=step.state, length=length, total_reward=episode.total_reward + step.reward)
    truncated = (length >= limit) | step.truncated
    return episode, Outcome(step.reward, step.terminated, truncated & ~step.terminated)


def episode_stats(env: DeviceEnv, episode: Episode) -> jax.Array:
    """Returns [K] float32, the spec's `episode_stats` so far."""
    return jnp.concatenate(
        [jnp.stack([episode.total_reward, episode.length.astype(jnp.float32)]), env.stats(episode.state)]
    )
