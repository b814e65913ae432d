"""PyPI's `crafter` without the pictures that it draws at each step: random actions, and an environment of gymnasium."""

from collections.abc import Generator
from typing import Any, NamedTuple

import gymnasium
import numpy as np

VIEW = (9, 7)  # cells that the player sees, by column and row
NUM_ITEMS = 16  # items of the inventory


class Played(NamedTuple):
    """Results of whole episodes."""

    episodes: list[tuple[int, frozenset[str]]]  # length, and achievements that were unlocked

    @property
    def num_steps(self) -> int:
        return sum(length for length, _ in self.episodes)


def make(seed: int | None = None) -> Any:
    """Returns the environment, which draws nothing: that would take most of the time."""
    import crafter

    env: Any = crafter.Env(seed=seed)
    env._obs = lambda: None
    return env


def play(seed: int, num_episodes: int) -> Generator[None, None, Played]:
    """Plays episodes with random actions to their ends, resets included: see `harness.run_together`."""
    env, rng = make(seed), np.random.default_rng(seed)
    play_episode(env, rng)
    yield
    played = [play_episode(env, rng) for _ in range(num_episodes)]
    yield
    return Played(played)


def play_episode(env: Any, rng: np.random.Generator) -> tuple[int, frozenset[str]]:
    """Plays an episode, its reset included. Returns its length and the achievements that it unlocked."""
    env.reset()
    ended, num_steps = False, 0
    counts: dict[str, int] = {}
    while not ended:
        *_, ended, info = env.step(rng.integers(env.action_space.n))
        num_steps, counts = num_steps + 1, info["achievements"]
    return num_steps, frozenset(name for name, count in counts.items() if count)


class SymbolsEnv(gymnasium.Env):
    """The environment as our policy reads it: the seen cells' numbers and the inventory, in one vector."""

    def __init__(self):
        self._env, size = make(), int(np.prod(VIEW)) + NUM_ITEMS
        self.observation_space = gymnasium.spaces.Box(0, 255, (size,), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(self._env.action_space.n)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        if seed is not None:
            self._env = make(seed)
        self._env.reset()
        return self._symbols(self._env._sem_view()), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        _, reward, ended, info = self._env.step(action)
        dies = info["discount"] == 0.0
        return self._symbols(info["semantic"]), reward, dies, ended and not dies, {}

    def _symbols(self, cells: np.ndarray) -> np.ndarray:
        player = self._env._player
        left, top = player.pos
        seen = np.pad(cells, [(size // 2, size // 2) for size in VIEW])[left : left + VIEW[0], top : top + VIEW[1]]
        return np.concatenate([seen.ravel(), list(player.inventory.values())]).astype(np.uint8)
