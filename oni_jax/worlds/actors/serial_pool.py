"""Environments stepped by this process itself."""

import time
from collections import deque

from oni_jax.worlds.actors.group import Group, MakeEnv
from oni_jax.worlds.actors.pool import Replies
from oni_jax.worlds.actors.ring import TrajectoryRing


class SerialPool:
    """Steps groups inside `wait`, in the order of dispatch. For lockstep, tests and debugging."""

    def __init__(self, make_env: MakeEnv, ring: TrajectoryRing):
        self._make_env, self._ring = make_env, ring
        self.groups: dict[int, Group] = {}
        self._commands: deque[tuple[int, int, int]] = deque()

    def start(self) -> None:
        indices = range(self._ring.shape.num_groups)
        self.groups = {index: Group(self._make_env, self._ring, index) for index in indices}

    def dispatch(self, group: int, slot: int, t: int) -> None:
        self._commands.append((group, slot, t))

    def wait(self, timeout_secs: float) -> Replies:
        if not self._commands:
            time.sleep(min(timeout_secs, 1e-3))
        done, texts = [], []
        while self._commands:
            group, slot, t = self._commands.popleft()
            texts += self.groups[group].advance(slot, t)
            done.append(group)
        return Replies(done, texts)

    def wake(self) -> None:
        pass

    def close(self) -> None:
        for group in self.groups.values():
            group.close()
