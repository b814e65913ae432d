"""What tiny environments share: N boards in arrays, random only where an episode begins."""

import json
from collections.abc import Mapping

import numpy as np

from oni_jax.envs.base import StepOutput
from oni_jax.types import EnvSpec


class SmallVectorEnv:
    """Base of vectorised environments; see `SavableEnv`. Subclasses write the three hooks and set `spec`.

    What they add to the state has to lie in arrays.

    Episode statistics: `return`, `length`.

    Args:
      num_envs: N.
      seed, first_index: environment i draws its episodes from a generator of (seed, first_index + i).
      max_episode_steps: steps after which an episode is truncated.
    """

    spec: EnvSpec
    num_restarts = 0  # nothing here fails

    def __init__(self, num_envs: int, seed: int = 0, first_index: int = 0, max_episode_steps: int = 5000):
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

    def observe(self, records: np.ndarray) -> None:
        """Writes the observations of all."""
        raise NotImplementedError

    def reset(self, out: StepOutput) -> None:
        self._begin_all(np.ones(self.num_envs, bool))
        self.observe(out.records)
        out.records["is_first"] = True
        for field in ("reward", "terminated", "truncated"):
            out.records[field] = 0

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        rewards, terminated = self.advance(actions)
        self._lengths += 1
        self._returns += rewards
        truncated = (self._lengths >= self._max_episode_steps) & ~terminated
        ended = terminated | truncated

        records = out.records
        records["reward"], records["terminated"], records["truncated"] = rewards, terminated, truncated
        records["is_first"] = False
        if ended.any():
            self.observe(out.finals)
            for field in ("reward", "terminated", "truncated", "is_first"):
                out.finals[field] = records[field]
            out.episode_stats[ended] = np.stack([self._returns, self._lengths], axis=1)[ended]
            self._begin_all(ended)
            records["is_first"] = ended
        self.observe(records)

    def note(self) -> str:
        return ""

    def close(self) -> None:
        pass

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

    def _begin_all(self, chosen: np.ndarray) -> None:
        for i in np.flatnonzero(chosen).tolist():
            self.begin(i)
        self._lengths[chosen] = 0
        self._returns[chosen] = 0
