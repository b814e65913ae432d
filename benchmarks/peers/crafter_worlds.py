"""Random actions in PyPI's `crafter`, without the pictures that it draws at each step."""

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np


class Played(NamedTuple):
    """Results of whole episodes."""

    num_steps: int
    unlocked: list[int]  # achievements of each episode


def play(seed: int, num_episodes: int) -> Generator[None, None, Played]:
    """Plays episodes with random actions to their ends, resets included: see `harness.run_together`."""
    import crafter

    env: Any = crafter.Env(seed=seed)
    rng = np.random.default_rng(seed)
    env._obs = lambda: None  # drawing would take most of the time
    play_episode(env, rng)
    yield
    played = [play_episode(env, rng) for _ in range(num_episodes)]
    yield
    return Played(sum(num_steps for num_steps, _ in played), [unlocked for _, unlocked in played])


def play_episode(env: Any, rng: np.random.Generator) -> tuple[int, int]:
    """Plays an episode, its reset included. Returns its length and the achievements that it unlocked."""
    env.reset()
    ended, num_steps, counts = False, 0, {}
    while not ended:
        *_, ended, info = env.step(rng.integers(env.action_space.n))
        num_steps, counts = num_steps + 1, info["achievements"]
    return num_steps, sum(count > 0 for count in counts.values())
