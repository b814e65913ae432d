"""Plays the episodes of an evaluation, the same for every player, number of processes and number of episodes.

A slot is one of NUM_SLOTS environments side by side, in groups of GROUP_SIZE. Slot s plays the episodes s,
s + NUM_SLOTS, and so on; its observations always have the same row of an inference batch of the same size, so that no
episode depends on the others. Results are then bit-identical on the same kind of machine.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np

from oni_jax.evaluation.agents import GROUP_SIZE, Agent
from oni_jax.evaluation.episodes import NUM_SLOTS, Episode, end_of
from oni_jax.evaluation.intrinsic import EpisodeReturns
from oni_jax.host.runtime import ChildError, Every, StopRequest
from oni_jax.types import EnvSpec
from oni_jax.worlds.actors.group import MakeEnv
from oni_jax.worlds.actors.pool import ActorPool
from oni_jax.worlds.actors.process_pool import ProcessPool
from oni_jax.worlds.actors.ring import RingShape, TrajectoryRing
from oni_jax.worlds.actors.serial_pool import SerialPool

MAX_GROUPS = NUM_SLOTS // GROUP_SIZE
WAIT_SECS = 0.2
PROGRESS_SECS = 10.0


class ActorsLostError(ChildError):
    """An actor process died, or its engine failed to start a game. `episodes` were finished before."""

    def __init__(self, reason: ChildError, episodes: Sequence[Episode]):
        super().__init__(str(reason))
        self.episodes = episodes


def play_episodes(
    make_env: MakeEnv,
    spec: EnvSpec,
    agent: Agent,
    num_episodes: int,
    max_episode_steps: int,
    num_workers: int,
    stop: StopRequest | None = None,
    returns: EpisodeReturns | None = None,
) -> list[Episode]:
    """Returns the episodes 0, 1, ..., num_episodes - 1, in this order; after a stop request, those finished so far.

    Args:
      make_env: with the seed of `episodes.evaluation_seed`.
      spec: of its environments.
      agent: new, without any core states.
      num_episodes: at least 1.
      max_episode_steps: that of make_env.
      num_workers: maximum of actor processes; 0: environments are stepped by this process.
      stop: checked between steps.
      returns: takes in the steps.

    Raises:
      ActorsLostError: see there.
    """
    # A power of two, divisible by the number of processes, a smaller one.
    num_groups = min(MAX_GROUPS, 1 << ((num_episodes - 1) // GROUP_SIZE).bit_length())
    ring = TrajectoryRing(spec, RingShape(num_groups, GROUP_SIZE, num_slots=num_groups, rollout=1))
    logs = [GroupLog(ring, group, num_episodes, max_episode_steps) for group in range(num_groups)]
    episodes: list[Episode] = []
    if returns:
        returns.begin(ring)
    due = Every(PROGRESS_SECS)
    try:
        with closing(_build_pool(make_env, ring, num_workers)) as pool:
            pool.start()
            for group in range(num_groups):
                pool.dispatch(group, group, 0)  # one slot of the ring per group, always row 0
            while any(log.playing for log in logs) and not stop:
                replies = pool.wait(WAIT_SECS)
                if returns:
                    returns.add_texts(replies.texts)
                for group in replies.done:
                    if returns:
                        returns.add(group, logs[group].ending())
                    episodes += logs[group].receive()
                    if logs[group].playing:
                        logs[group].act(agent)
                        pool.dispatch(group, group, 0)
                if due():
                    num_steps = sum(log.num_steps for log in logs)
                    counts = f"{len(episodes):,} of {num_episodes:,} episodes, {num_steps:,} steps"
                    print(counts if num_steps else "environments start, and the policy compiles", flush=True)
    except ChildError as error:
        raise ActorsLostError(error, sorted(episodes)) from None
    print(*ring.notes(), sep="\n", end="\n" if ring.notes() else "", flush=True)
    return sorted(episodes)


class GroupLog:
    """Running episodes of a group, and their actions so far."""

    def __init__(self, ring: TrajectoryRing, group: int, num_episodes: int, max_episode_steps: int):
        self._ring, self._group = ring, group
        self._num_episodes, self._max_episode_steps = num_episodes, max_episode_steps
        self._records = ring.records[group, 0]
        self._episodes = group * GROUP_SIZE + np.arange(GROUP_SIZE, dtype=np.int32)
        self._steps = np.zeros(GROUP_SIZE, np.int32)
        self._actions = [bytearray() for _ in range(GROUP_SIZE)]
        self.num_steps = 0  # of the requested episodes

    @property
    def playing(self) -> bool:
        """True while there are episodes left to finish."""
        return bool((self._episodes < self._num_episodes).any())

    def ending(self) -> list[int]:
        """Returns the indices of the episodes that ended with the last step, in order of their rows."""
        return self._episodes[self._ended()].tolist()

    def _ended(self) -> np.ndarray:
        return np.flatnonzero(self._records["terminated"] | self._records["truncated"])

    def receive(self) -> Iterator[Episode]:
        """Reads the first observations or the last step from the ring. Yields the episodes that ended."""
        records, stats = self._records, self._ring.episode_stats[self._group]
        for i in self._ended().tolist():
            index = int(self._episodes[i])
            if index < self._num_episodes:
                named = dict(zip(self._ring.spec.episode_stats, stats[i].tolist(), strict=True))
                is_truncated, reward = bool(records["truncated"][i]), float(records["reward"][i])
                end = end_of(named, is_truncated, self._max_episode_steps, reward)
                yield Episode(index, named, bytes(self._actions[i]), end)
            self._episodes[i] += NUM_SLOTS
            self._steps[i] = 0
            self._actions[i].clear()

    def act(self, agent: Agent) -> None:
        """Writes the next actions to the ring."""
        actions = agent.act(self._group, self._records, self._episodes, self._steps)
        self._ring.actions[self._group] = actions
        for kept, action in zip(self._actions, actions.tolist()):
            kept.append(action)
        self._steps += 1
        self.num_steps += int((self._episodes < self._num_episodes).sum())


def _build_pool(make_env: MakeEnv, ring: TrajectoryRing, num_workers: int) -> ActorPool:
    if not num_workers:
        return SerialPool(make_env, ring)
    power = min(num_workers, ring.shape.num_groups).bit_length() - 1
    return ProcessPool(make_env, ring, 1 << power)
