"""NLE's environments, stepped in turn: the peer of our stepper."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from nle.env import tasks as nle_tasks

from oni_jax.envs.nethack.game import CHARACTER
from oni_jax.envs.nethack.tasks import Task, nethack
from oni_jax.envs.nethack.vector_env import Seeds


def make_env(task: Task, observation_keys: Sequence[str], max_episode_steps: int = 5000) -> Any:
    """Makes NLE's score environment with this task's keys. It reads `internal` and `program_state` by itself."""
    return nle_tasks.NetHackScore(
        actions=task.keys,
        observation_keys=[key for key in observation_keys if key not in ("internal", "program_state")],
        character=CHARACTER.removeprefix("Agent-"),
        max_episode_steps=max_episode_steps,
        fix_moon_phase=True,
    )


class NleEnvs:
    """N environments; an ended one is reset to the next episode of `seeds`."""

    def __init__(self, task: Task, num_envs: int, seeds: Seeds, first_index: int, observation_keys: Sequence[str]):
        self._envs = [make_env(task, observation_keys) for _ in range(num_envs)]
        self._seeds, self._first_index = seeds, first_index
        self._episodes = [-1] * num_envs
        self._turns = [0] * num_envs  # turns of the running episodes
        self._turns_of_episodes = 0
        for i in range(num_envs):
            self._reset(i)

    def run(self, actions: np.ndarray) -> None:
        """Steps all environments with actions [S, N]."""
        for row in actions.tolist():
            for i, action in enumerate(row):
                observation, _, terminated, truncated, _ = self._envs[i].step(action)
                if terminated or truncated:
                    self._turns_of_episodes += self._turns[i]  # blstats are no longer valid
                    self._reset(i)
                else:
                    self._turns[i] = observation["blstats"].item(nethack.NLE_BL_TIME)

    def turns(self) -> int:
        """Returns the turns of game time, over all games and episodes so far."""
        return self._turns_of_episodes + sum(self._turns)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _reset(self, i: int) -> None:
        self._episodes[i] += 1
        self._turns[i] = 0
        self._envs[i].seed(*self._seeds(self._first_index + i, self._episodes[i]), reseed=False)
        self._envs[i].reset()
