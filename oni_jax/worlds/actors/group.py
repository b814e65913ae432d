"""One group of environments: reads its actions from the ring, steps, and writes the outcome to the ring."""

import time
from collections.abc import Callable, Mapping

import numpy as np

from oni_jax.envs.base import VectorEnv, make_texts
from oni_jax.envs.captions import CaptionTracker, NewTexts
from oni_jax.envs.display import drawn
from oni_jax.worlds.actors.ring import TrajectoryRing

MakeEnv = Callable[..., VectorEnv]  # called with num_envs= and first_index=, the first one's index over all actors


class Group:
    """The environments of one group. The first call of `advance` resets them, each later one steps them.

    restarts: times that the group was lost before. New environments get new indices, and so new episodes.
    """

    def __init__(self, make_env: MakeEnv, ring: TrajectoryRing, index: int, restarts: int = 0):
        num_envs = ring.shape.group_size
        first_index = (restarts * ring.shape.num_groups + index) * num_envs
        self._env = make_env(num_envs=num_envs, first_index=first_index)
        self._tracker, self._texts = CaptionTracker(ring.spec, num_envs), make_texts(num_envs)
        self._ring, self._index = ring, index
        self._started = False
        self._num_restarts = 0  # restarts of environments, as counted in the ring

    def advance(self, slot: int, t: int) -> NewTexts:
        """Writes row `t` of `slot` and the group's episode statistics. Returns the new texts."""
        start = time.perf_counter()
        ring, index = self._ring, self._index
        out = ring.step_output(index, slot, t, self._texts)
        if self._started:
            self._env.step(ring.actions[index], out)
        else:
            self._env.reset(out)
            self._started = True
        if t in (0, ring.shape.rollout):  # the first row, then the last of each trajectory
            ring.set_note(index, self._env.note())
            ring.env_restarts[index] += self._env.num_restarts - self._num_restarts
            self._num_restarts = self._env.num_restarts
        if index == 0 and ring.terminal.is_asked:
            ring.terminal.write(drawn(self._env.terminal))
        new = self._tracker.update(out, ring.texts[slot, t])
        ring.busy_secs[index] += time.perf_counter() - start
        return new

    def save(self) -> dict[str, np.ndarray]:
        """Returns, between two steps, the environments' and captions' state; {} before a start or if not savable."""
        saved = self._env.save() if self._started else {}
        return {**saved, **self._tracker.save()} if saved else {}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restores what `save` returned, instead of a start."""
        self._env.restore(saved)
        self._tracker.restore(saved)
        self._started = True

    def close(self) -> None:
        self._env.close()
