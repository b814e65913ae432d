"""Random actions in environments in this process: ours, as gymnasium's vector, NLE's. Without flags: tests use it."""

import functools

import numpy as np

from oni_jax.envs.base import make_step_output
from oni_jax.envs.gymnasium_vector import GymnasiumVector
from oni_jax.envs.nethack.game import ESCAPE, IN_MORE, IN_QUESTION, SPACE
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.settings.worlds import EnvConfig


class HostEnvs:
    """N environments of ours in this process, with random actions that depend on `first_index` alone."""

    def __init__(self, config: EnvConfig, num_envs: int, first_index: int = 0):
        self._env = make_vector_env(config, num_envs, 0, first_index)
        self._out, self._rng = make_step_output(self._env.spec, num_envs), np.random.default_rng(first_index)
        self._env.reset(self._out)

    def run(self, num_steps: int) -> None:
        """Takes steps of each environment."""
        for actions in _draw(self._rng, num_steps, self._env.num_envs, self._env.spec.num_actions):
            self._env.step(actions, self._out)

    def shown(self) -> bytes:
        """Returns all observations after the last step."""
        return b"".join(self._out.records[name].tobytes() for name in self._env.spec.observations)

    def close(self) -> None:
        self._env.close()


class GymnasiumEnvs:
    """The same environments as HostEnvs, through the class that `oni_jax.make_vec` returns."""

    def __init__(self, config: EnvConfig, num_envs: int, first_index: int = 0):
        make = functools.partial(make_vector_env, config, num_envs, first_index=first_index)
        self._envs = GymnasiumVector(make, env_spec(config), {}, num_envs)
        self._rng, self._num_actions = np.random.default_rng(first_index), env_spec(config).num_actions
        self._observations, _ = self._envs.reset(seed=0)
        self.close = self._envs.close

    def run(self, num_steps: int) -> None:
        """Takes steps of each environment."""
        for actions in _draw(self._rng, num_steps, self._envs.num_envs, self._num_actions):
            self._observations, *_ = self._envs.step(actions)

    def shown(self) -> bytes:
        """Returns all observations after the last step."""
        return b"".join(values.tobytes() for values in self._observations.values())


class BuiltEngine:
    """N games of the built engine with the same seeds and actions, of which nothing is read but what it waits for."""

    def __init__(self, config: EnvConfig, num_envs: int, first_index: int = 0):
        from oni_jax.envs.nethack.engine import built, identity
        from oni_jax.envs.nethack.screens import VIEWS
        from oni_jax.envs.nethack.tasks import TASKS
        from oni_jax.envs.nethack.vector_env import episode_seeds

        view, task = VIEWS[config.nethack.view], TASKS[config.root_env]
        names = ("blstats", "message", "glyphs", "internal", "program_state", view.chars, view.colors)
        shown = [identity.Observed.zeros().arrays for _ in range(num_envs)]
        library, self._keys, self._seeds = built.find_engine(), task.keys, episode_seeds(0)
        self._games = [identity.BuiltGame(library, {name: arrays[name] for name in names}) for arrays in shown]
        self._waits = [arrays["internal"] for arrays in shown]
        self._rng, self._first, self._episodes = np.random.default_rng(first_index), first_index, [0] * num_envs
        for i in range(num_envs):
            self._start(i)

    def run(self, num_steps: int) -> None:
        """Presses the keys of steps of each game, and what its prompts need."""
        for actions in _draw(self._rng, num_steps, len(self._games), len(self._keys)):
            for i, action in enumerate(actions.tolist()):
                self._press(i, self._keys[action])

    def close(self) -> None:
        for game in self._games:
            game.close()

    def _start(self, i: int) -> None:
        self._games[i].start(*self._seeds(self._first + i, self._episodes[i]))
        self._episodes[i] += 1
        self._press(i, SPACE)

    def _press(self, i: int, key: int) -> None:
        game, waits = self._games[i], self._waits[i]
        game.press(key)
        while not game.is_done():
            if not waits[IN_QUESTION : IN_MORE + 1].any():
                return
            game.press(SPACE if waits[IN_MORE] else ESCAPE)
        self._start(i)


class NleEnvs:
    """N environments of NLE's with the same seeds, actions and observations."""

    def __init__(self, config: EnvConfig, num_envs: int, first_index: int = 0):
        from benchmarks.peers import nle_env
        from oni_jax.envs.nethack.screens import VIEWS
        from oni_jax.envs.nethack.tasks import TASKS
        from oni_jax.envs.nethack.vector_env import episode_seeds

        view, task = VIEWS[config.nethack.view], TASKS[config.root_env]
        names = ("blstats", "message", "glyphs", view.chars, view.colors)
        self._envs = nle_env.NleEnvs(task, num_envs, episode_seeds(0), first_index, names)
        self._rng, self._size = np.random.default_rng(first_index), (num_envs, len(task.keys))
        self.close = self._envs.close

    def run(self, num_steps: int) -> None:
        """Takes steps of each environment."""
        self._envs.run(_draw(self._rng, num_steps, *self._size))


def _draw(rng: np.random.Generator, num_steps: int, num_envs: int, num_actions: int) -> np.ndarray:
    return np.stack([rng.integers(num_actions, size=num_envs, dtype=np.int32) for _ in range(num_steps)])
