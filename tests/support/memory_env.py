"""Memory: an episode's first signal is recalled at its end. Shows whether a recurrent core starts each episode anew.

Decision go on at random after the first, episodes differ in length and nothing marks their beginning: without
a state that is zero there, no agent can tell which signal was the first.
"""

from typing import Any

import numpy as np

from oni_jax.envs.registry import register_environment
from oni_jax.envs.small_env import SmallVectorEnv, small_environment
from oni_jax.types import ArraySpec, EnvSpec

MAX_DELAY = 4
# Best mean return of an agent whose memory crosses the episodes' ends. The first signal is one of the last four before
# the present one, each with equal chance; their majority is right with probability 11/16.
CARRIED_RETURN = 0.375

SPEC = EnvSpec(
    observations={"signal": ArraySpec((1,), "float32")},
    num_actions=2,
    has_captions=False,
    episode_stats=("return", "length"),
)


class MemoryVectorEnv(SmallVectorEnv):
    """Actions 0, 1 stand for signals -1, 1. Only the last counts: reward 1 if it is the first signal, else -1.

    Observation: `signal` [1] float32, -1 or 1, drawn anew each time. An episode has 2 to MAX_DELAY + 1 of them, each
    number with equal chance. Best mean return 1; without memory 0; with memory across episodes CARRIED_RETURN.
    """

    spec = SPEC

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._signals = np.zeros((self.num_envs, MAX_DELAY + 1), np.int64)  # [N, time], 0 or 1
        self._delays, self._times = np.zeros((2, self.num_envs), np.int64)

    def begin(self, i: int) -> None:
        self._signals[i] = self.generators[i].integers(2, size=MAX_DELAY + 1)
        self._delays[i] = self.generators[i].integers(1, MAX_DELAY + 1)
        self._times[i] = 0

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at_end = self._times == self._delays
        # The final observation is that of the last action: there is no signal after it.
        self._times = np.minimum(self._times + 1, self._delays)
        return np.where(at_end, np.where(actions == self._signals[:, 0], 1.0, -1.0), 0.0), at_end

    def observe(self) -> dict[str, np.ndarray]:
        signals = self._signals[np.arange(self.num_envs), self._times]
        return {"signal": (2 * signals - 1)[:, None]}


ENVIRONMENT = small_environment("Memory-v0", MemoryVectorEnv)
register_environment(ENVIRONMENT)
