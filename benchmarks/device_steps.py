"""Random actions in environments on devices. Without flags, since tests use it too."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.device.autoreset import Stepped, begin_all, step_all
from oni_jax.envs.device.base import DeviceEnv
from oni_jax.envs.device.episodes import Episode, environment_key, step_limit
from oni_jax.envs.device.shown import Shown
from oni_jax.parallel import AXIS_0, AXIS_1, Replicas
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import Array

Running = tuple[Episode, Shown]
Results = tuple[Shown, Stepped]


def warmed_up(env: DeviceEnv, num_envs: int, unroll: int, num_steps: int) -> "DeviceSteps":
    """Makes environments on all devices whose episodes have gone on for longer than a step limit, or `num_steps`."""
    steps = DeviceSteps(env, num_envs, unroll, Replicas())
    for _ in range(-(-2 * min(steps.limit, num_steps) // unroll)):
        steps.run()
    return steps


class DeviceSteps:
    """N environments, stepped in one jitted scan that gives what a rollout gives: all that is shown, and all outcomes.

    Args:
        env: functions of one environment.
        num_envs: N, a multiple of the number of devices.
        unroll: T, steps of each environment in a call.
        replicas: devices over which the environments are sharded; the first one when left out.
    """

    def __init__(self, env: DeviceEnv, num_envs: int, unroll: int, replicas: Replicas | None = None):
        replicas = replicas or Replicas(jax.local_devices()[:1])
        self.num_envs, self.unroll = num_envs, unroll
        self.limit = step_limit(env, EnvConfig().max_episode_steps)
        names = tuple(env.spec.observations)

        def begin(_: Any, indices: Array) -> Running:
            keys = jax.vmap(functools.partial(environment_key, 0))(indices)
            return begin_all(env, names, keys, jnp.zeros_like(indices, jnp.int32))

        def draw_actions(key: Array, count: Array) -> Array:
            key = jax.random.fold_in(jax.random.fold_in(key, 0x7FFF_FFFF), count)  # apart from the episodes' keys
            return jax.random.randint(key, (unroll,), 0, env.spec.num_actions, jnp.int32)

        def step(running: Running, actions: Array) -> tuple[Running, Results]:
            episodes, shown, stepped = step_all(env, names, running[0], actions, self.limit)
            return (episodes, shown), (shown, stepped)

        def run(count: Array, running: Running) -> tuple[Running, Results]:
            actions = jax.vmap(draw_actions, (0, None))(running[0].key, count)
            return jax.lax.scan(step, running, actions.T)

        self._begin = jax.jit(replicas.sharded(begin, (AXIS_0,), AXIS_0))
        self._run: Any = jax.jit(replicas.sharded(run, (AXIS_0,), (AXIS_0, AXIS_1)), donate_argnums=1)
        self._count = 0
        self.begin(0)

    def begin(self, first_index: int) -> None:
        """Starts the first episodes of the environments from this index on."""
        self._running = self._begin((), np.arange(first_index, first_index + self.num_envs, dtype=np.uint32))

    def run(self) -> Results:
        """Takes T steps of each environment, and waits for them. Leaves [T, N, ...], those shown after the actions."""
        self._running, results = self._run(np.uint32(self._count), self._running)
        self._count += 1
        return jax.block_until_ready(results)

    def first_stats(self, first_index: int) -> np.ndarray:
        """Plays the first episodes of the environments from this index on. Returns their statistics [N, S]."""
        self.begin(first_index)
        first: np.ndarray | None = None
        for _ in range(-(-self.limit // self.unroll)):
            _, stepped = self.run()
            ended, stats = np.asarray(stepped.ended), np.asarray(stepped.stats)
            if first is None:
                first = np.full(stats.shape[1:], np.nan, np.float32)
            is_first = ended.any(0) & np.isnan(first[:, 0])
            first[is_first] = stats[ended.argmax(0), np.arange(self.num_envs)][is_first]
            if not np.isnan(first[:, 0]).any():
                break
        assert first is not None
        return first
