"""N environments as pure functions: their start, and a step that resets those whose episode ended."""

import functools
from typing import NamedTuple

import jax

from oni_jax.envs.device.base import DeviceEnv
from oni_jax.envs.device.episodes import Episode, Outcome, advance, begin_episode, episode_stats
from oni_jax.envs.device.resets import default_chunk, reset_ended
from oni_jax.envs.device.shown import Shown, show


class Stepped(NamedTuple):
    """Outcomes of N actions."""

    outcome: Outcome  # each [N]
    final: Shown  # the states that the actions led to
    stats: jax.Array  # [N, K] float32; of the episodes so far

    @property
    def ended(self) -> jax.Array:
        """[N] bool; the episode ended."""
        return self.outcome.terminated | self.outcome.truncated


def begin_all(env: DeviceEnv, names: tuple[str, ...], keys: jax.Array, numbers: jax.Array) -> tuple[Episode, Shown]:
    """Starts the episodes with these numbers [N] of environments with keys [N], and shows the named observations."""
    episodes = jax.vmap(functools.partial(begin_episode, env))(keys, numbers)
    return episodes, jax.vmap(functools.partial(show, env, names))(episodes.state)


def step_all(
    env: DeviceEnv, names: tuple[str, ...], episodes: Episode, actions: jax.Array, limit: int | jax.Array
) -> tuple[Episode, Shown, Stepped]:
    """Takes actions [N] int32. Returns the running episodes, of which each shown is a next one where it ended.

    Args:
      env: of one environment.
      names: of the observations to show.
      episodes: leaves [N, ...].
      actions: [N] int32.
      limit: see `episodes.advance`.
    """
    moved, outcome = jax.vmap(functools.partial(advance, env), in_axes=(0, 0, None))(episodes, actions, limit)
    final = jax.vmap(functools.partial(show, env, names))(moved.state)
    stepped = Stepped(outcome, final, jax.vmap(functools.partial(episode_stats, env))(moved))
    return *reset_ended(env, moved, final, stepped.ended, default_chunk(len(actions))), stepped
