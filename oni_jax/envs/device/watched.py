"""Device environments that people look at: one episode, drawn on the host."""

import functools

import jax
import numpy as np

from oni_jax.envs.base import StepOutput
from oni_jax.envs.device.base import DeviceEnv
from oni_jax.envs.device.episodes import Episode, advance
from oni_jax.envs.device.shown import first_scene
from oni_jax.envs.device.vector_env import DeviceVectorEnv, on_cpu
from oni_jax.envs.display import Terminal, WatchedEnv
from oni_jax.types import EnvSpec


class WatchedDeviceEnv(DeviceVectorEnv, WatchedEnv):
    """The episode with this number of one environment. See `WatchedEnv`.

    Args:
      env: of one environment, whose states can be drawn.
      seed, index, max_episode_steps, spec: see `DeviceVectorEnv`.
      number: of the episode.
    """

    def __init__(
        self,
        env: DeviceEnv,
        seed: int,
        index: int,
        max_episode_steps: int,
        spec: EnvSpec,
        number: int,
    ):
        super().__init__(env, 1, seed, index, max_episode_steps, spec, number)
        self._shown: Episode | None = None  # not reset at its end

    def reset(self, out: StepOutput) -> None:
        super().reset(out)
        self._shown = self._episodes
        self._compile_step()

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        with on_cpu():
            self._shown = _advance(self._env, self._episodes, actions, self._limit)
        super().step(actions, out)

    def _compile_step(self) -> None:
        """Compiles a step now, so that nobody waits for it at the first key. It changes nothing: steps are pure."""
        no_action = np.zeros(1, np.int32)
        with on_cpu():
            _advance(self._env, self._episodes, no_action, self._limit)
            self._step_all(no_action)

    def terminal(self) -> Terminal:
        assert self._shown is not None
        with on_cpu():
            scene = first_scene(self._env, self._shown.state)
        terminal = self._env.draw(jax.device_get(scene))
        assert terminal is not None
        return terminal


@functools.partial(jax.jit, static_argnums=0)
def _advance(env: DeviceEnv, episodes: Episode, actions: jax.Array, limit: int) -> Episode:
    return jax.vmap(functools.partial(advance, env), (0, 0, None))(episodes, actions, limit)[0]
