"""One group of games: takes the actions that lie in the ring and writes what came of them into it."""

import time
from collections.abc import Callable, Mapping

import numpy as np

from oni_jax.buffers.ring import TrajectoryRing
from oni_jax.envs.base import SavableEnv, VectorEnv, make_texts
from oni_jax.envs.captions import CaptionTracker, NewTexts

MakeEnv = Callable[..., VectorEnv]  # called with num_envs= and first_index=, the first one's number over all actors


class Group:
    """The games of one group. The first call of `advance` starts them, each later one steps them.

    `restarts` times they were lost before: the games' numbers, which decide what they are, go on behind theirs.
    """

    def __init__(self, make_env: MakeEnv, ring: TrajectoryRing, index: int, restarts: int = 0):
        num_envs = ring.shape.group_size
        first_index = (restarts * ring.shape.num_groups + index) * num_envs
        self._env = make_env(num_envs=num_envs, first_index=first_index)
        self._tracker, self._texts = CaptionTracker(ring.spec, num_envs), make_texts(num_envs)
        self._ring, self._index = ring, index
        self._started = False
        self._num_restarts = 0  # of games, counted in the ring

    def advance(self, slot: int, t: int) -> NewTexts:
        """Writes row `t` of `slot` and the group's episode statistics. Returns the texts met for the first time."""
        start = time.perf_counter()
        ring, index = self._ring, self._index
        out = ring.step_output(index, slot, t, self._texts)
        if self._started:
            self._env.step(ring.actions[index], out)
        else:
            self._env.reset(out)
            self._started = True
        if t in (0, ring.shape.rollout):  # the first row, and from then on the last of each trajectory
            ring.set_note(index, self._env.note())
            ring.game_restarts[index] += self._env.num_restarts - self._num_restarts
            self._num_restarts = self._env.num_restarts
        new = self._tracker.update(out, ring.texts[slot, t])
        ring.busy_secs[index] += time.perf_counter() - start
        return new

    def save(self) -> dict[str, np.ndarray]:
        """Between two steps: the games, and what they have shown; nothing before they start or where they can't be."""
        if not (self._started and isinstance(self._env, SavableEnv)):
            return {}
        return {**self._env.save(), **self._tracker.save()}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """The inverse of `save`, in place of a start."""
        assert isinstance(self._env, SavableEnv)
        self._env.restore(saved)
        self._tracker.restore(saved)
        self._started = True

    def close(self) -> None:
        self._env.close()
