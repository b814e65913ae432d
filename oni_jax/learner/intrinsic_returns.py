"""Intrinsic returns: sums of each intrinsic reward over episodes, which may span several batches."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import chex
import numpy as np

from oni_jax.ops.episode_sums import sum_rewards
from oni_jax.types import Array
from oni_jax.worlds.base import Episodes

RUNNING, ENDED = "intrinsic_returns", "ended_intrinsic_returns"  # names of the saved arrays


class IntrinsicReturns:
    """Sums of K rewards over the running episodes of a process's environments; on the host, in float64.

    A sum is NaN where a part of its episode is unknown: its trajectory was dropped, or its rewards are NaN.

    Args:
        labels: of the rewards.
    """

    def __init__(self, labels: Sequence[str]):
        self.labels = tuple(labels)
        self._sums = np.zeros((len(self.labels), 0))  # [K, environments]
        self._ended: deque[np.ndarray] = deque()

    def add(self, rewards: np.ndarray, episodes: Episodes) -> None:
        """Takes in a batch's rewards [K, T, B], before their coefficients."""
        chex.assert_shape(rewards, (len(self.labels), *episodes.ended.shape))
        missing = max(0, int(episodes.envs.max()) + 1 - self._sums.shape[1])
        self._sums = np.pad(self._sums, ((0, 0), (0, missing)), constant_values=np.nan)
        for columns in _once_each(episodes.envs):
            envs = episodes.envs[columns]
            before = np.where(episodes.after_gap[columns], np.nan, self._sums[:, envs])
            steps = (rewards[..., columns], episodes.is_first[:, columns], episodes.ended[:, columns])
            self._sums[:, envs], ended = sum_rewards(before, *steps)
            self._ended.extend(returns for returns in ended if np.isfinite(returns).all())

    def take(self) -> list[np.ndarray]:
        """Returns the intrinsic returns [K] float32 of episodes that have ended since the last call."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def save(self) -> dict[str, np.ndarray]:
        """Returns the running sums, and the returns not taken yet; to be restored with the environments alone."""
        ended = np.array(self._ended, np.float32).reshape(len(self._ended), len(self.labels))
        return {RUNNING: self._sums.copy(), ENDED: ended} if self.labels else {}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        if RUNNING in saved:
            self._sums = saved[RUNNING].copy()
            self._ended.extend(saved[ENDED])


def _once_each(envs: Array) -> Iterator[np.ndarray]:
    """Yields indices of columns, earlier trajectories first: each environment occurs once in each yield."""
    left = np.arange(len(envs))
    while len(left):
        _, first = np.unique(envs[left], return_index=True)
        first.sort()
        yield left[first]
        left = np.delete(left, first)
