"""Bases of environments written in Python: episode statistics, step limit, and a random generator each."""

import json
from collections.abc import Mapping

import numpy as np

from oni_jax.envs.base import Environment, Language, StepOutput, VectorEnv
from oni_jax.ops.bounds import bounded
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import EnvSpec


def small_environment(name: str, env_class: "type[SmallVectorEnv]", language: Language | None = None) -> Environment:
    """Returns the environment whose only task is a class's."""

    def make(config: EnvConfig, spec: EnvSpec, num_envs: int, seed: int, first_index: int) -> SmallVectorEnv:
        return env_class(num_envs, seed, first_index, config.max_episode_steps, spec)

    return Environment((name,), lambda config: env_class.spec, make, language=language)


class SteppedVectorEnv(VectorEnv):
    """Base of vectorised environments. Subclasses implement the hooks and set `spec`.

    Episode statistics: `return`, `length`.

    Args:
      num_envs: N.
      seed, first_index: environment i draws its episodes from a generator of (seed, first_index + i).
      max_episode_steps: steps after which an episode is truncated.
      spec: spec with the observations to show; with all when left out.
    """

    spec: EnvSpec
    num_restarts = 0  # never replaced

    def __init__(
        self,
        num_envs: int,
        seed: int = 0,
        first_index: int = 0,
        max_episode_steps: int = 5000,
        spec: EnvSpec | None = None,
    ):
        self.spec = spec or self.spec
        self.num_envs = num_envs
        self.generators = [np.random.default_rng([seed, first_index + i]) for i in range(num_envs)]
        self._max_episode_steps = max_episode_steps
        self._lengths = np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs)

    def begin(self, i: int) -> None:
        """Starts an episode of environment i."""
        raise NotImplementedError

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Takes actions [N]. Returns (rewards [N], terminated [N] bool)."""
        raise NotImplementedError

    def cut_off(self) -> np.ndarray:
        """Returns the truncated episodes, [N] bool; one that terminates at the same step counts as terminated."""
        return self._lengths >= self._max_episode_steps

    def observe(self) -> Mapping[str, np.ndarray]:
        """Returns all observations by name, [N, ...] each."""
        raise NotImplementedError

    def captions(self) -> list[bytes]:
        """Returns all observations' captions, where the spec has captions."""
        raise NotImplementedError

    def events(self) -> list[bytes]:
        """Returns the effects of the last actions, where the spec has events."""
        raise NotImplementedError

    def reset(self, out: StepOutput) -> None:
        self._begin_all(np.ones(self.num_envs, bool))
        self._show(out.records, out.texts.captions)
        out.texts.events[:] = [b""] * self.num_envs
        out.records["is_first"] = True
        for field in ("reward", "terminated", "truncated"):
            out.records[field] = 0

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        advanced, terminated = self.advance(actions)
        rewards = bounded(advanced)
        if self.spec.has_events:
            out.texts.events[:] = self.events()
        self._lengths += 1
        self._returns += rewards
        truncated = self.cut_off() & ~terminated
        ended = terminated | truncated

        records = out.records
        records["reward"], records["terminated"], records["truncated"] = rewards, terminated, truncated
        records["is_first"] = False
        if ended.any():
            self._show(out.finals, out.texts.final_captions)
            for field in ("reward", "terminated", "truncated", "is_first"):
                out.finals[field] = records[field]
            out.episode_stats[ended] = np.stack([self._returns, self._lengths], axis=1)[ended]
            self._begin_all(ended)
            records["is_first"] = ended
        self._show(records, out.texts.captions)

    def _show(self, records: np.ndarray, captions: list[bytes]) -> None:
        for name, values in self.observe().items():
            if name in self.spec.observations:
                records[name] = values
        if self.spec.has_captions:
            captions[:] = self.captions()

    def _begin_all(self, chosen: np.ndarray) -> None:
        for i in np.flatnonzero(chosen).tolist():
            self.begin(i)
        self._lengths[chosen] = 0
        self._returns[chosen] = 0


class SmallVectorEnv(SteppedVectorEnv):
    """An environment whose state is in array attributes, subclasses' included, and can be saved."""

    def save(self) -> dict[str, np.ndarray]:
        generators = json.dumps([generator.bit_generator.state for generator in self.generators])
        return {**self._arrays(), "generators": np.array(generators)}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        for name in self._arrays():
            setattr(self, name, saved[name].copy())
        for generator, state in zip(self.generators, json.loads(str(saved["generators"])), strict=True):
            generator.bit_generator.state = state

    def _arrays(self) -> dict[str, np.ndarray]:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
