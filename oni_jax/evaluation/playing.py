"""Plays the episodes of an evaluation: the same ones whoever plays, however many processes and episodes there are.

A slot is one of NUM_SLOTS games side by side, in units of UNIT_SIZE. Slot s plays the episodes s, s + NUM_SLOTS, and
so on; its observations always lie in the same row of an inference batch of the same size, so that nothing that an
episode is made of depends on the others. Numbers then repeat to the last digit on the same kind of machine.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np

from oni_jax.actors.group import MakeEnv
from oni_jax.actors.pool import ActorPool
from oni_jax.actors.process_pool import ProcessPool
from oni_jax.actors.serial_pool import SerialPool
from oni_jax.buffers.ring import RingShape, TrajectoryRing
from oni_jax.evaluation.agents import UNIT_SIZE, Agent
from oni_jax.evaluation.episodes import NUM_SLOTS, Episode, end_of
from oni_jax.runtime import ChildError, Every, StopRequest
from oni_jax.types import EnvSpec

MAX_UNITS = NUM_SLOTS // UNIT_SIZE
WAIT_SECS = 0.2
PROGRESS_SECS = 10.0


class ActorsLostError(ChildError):
    """A process died, or an engine failed to start a game again and again. `episodes` were finished until then."""

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
) -> list[Episode]:
    """The episodes 0, 1, ..., num_episodes - 1, in this order; of a request to stop, those finished until then.

    Args:
      make_env: of the seed that `episodes.evaluation_seed` gives.
      spec: its environments'.
      agent: plays from the beginning.
      num_episodes: at least 1.
      max_episode_steps: make_env's.
      num_workers: processes at most; 0: games are stepped by this process.
      stop: looked at between steps.

    Raises:
      ActorsLostError: see there.
    """
    num_units = _num_units(num_episodes)
    ring = TrajectoryRing(spec, RingShape(num_units, UNIT_SIZE, num_slots=num_units, rollout=1))
    units = [Unit(ring, unit, num_episodes, max_episode_steps) for unit in range(num_units)]
    episodes: list[Episode] = []
    due = Every(PROGRESS_SECS)
    try:
        with closing(_build_pool(make_env, ring, num_workers)) as pool:
            pool.start()
            for unit in range(num_units):
                pool.dispatch(unit, unit, 0)  # a ring's slot a unit, always its row 0
            while any(unit.playing for unit in units) and not stop:
                for number in pool.wait(WAIT_SECS).done:
                    unit = units[number]
                    episodes += unit.receive()
                    if unit.playing:
                        unit.act(agent)
                        pool.dispatch(number, number, 0)
                if due():
                    num_steps = sum(unit.num_steps for unit in units)
                    print(f"{len(episodes):,} of {num_episodes:,} episodes, {num_steps:,} steps", flush=True)
    except ChildError as error:
        raise ActorsLostError(error, sorted(episodes)) from None
    print(*ring.notes(), sep="\n", end="\n" if ring.notes() else "", flush=True)
    return sorted(episodes)


class Unit:
    """The books of a unit: which episode each of its games is in, and what was done there."""

    def __init__(self, ring: TrajectoryRing, unit: int, num_episodes: int, max_episode_steps: int):
        self._ring, self._unit = ring, unit
        self._num_episodes, self._max_episode_steps = num_episodes, max_episode_steps
        self._records = ring.records[unit, 0]
        self._episodes = unit * UNIT_SIZE + np.arange(UNIT_SIZE, dtype=np.int32)
        self._steps = np.zeros(UNIT_SIZE, np.int32)
        self._actions = [bytearray() for _ in range(UNIT_SIZE)]
        self.num_steps = 0  # of episodes that count

    @property
    def playing(self) -> bool:
        """Whether there are episodes left to finish."""
        return bool((self._episodes < self._num_episodes).any())

    def receive(self) -> Iterator[Episode]:
        """Takes in what the games' first observations or last step brought."""
        records, stats = self._records, self._ring.episode_stats[self._unit]
        for i in np.flatnonzero(records["terminated"] | records["truncated"]).tolist():
            index = int(self._episodes[i])
            if index < self._num_episodes:
                named = dict(zip(self._ring.spec.episode_stats, stats[i].tolist(), strict=True))
                end = end_of(named, bool(records["truncated"][i]), self._max_episode_steps)
                yield Episode(index, named, bytes(self._actions[i]), end)
            self._episodes[i] += NUM_SLOTS
            self._steps[i] = 0
            self._actions[i].clear()

    def act(self, agent: Agent) -> None:
        """Leaves the next actions in the ring."""
        actions = agent.act(self._unit, self._records, self._episodes, self._steps)
        self._ring.actions[self._unit] = actions
        for kept, action in zip(self._actions, actions.tolist()):
            kept.append(action)
        self._steps += 1
        self.num_steps += int((self._episodes < self._num_episodes).sum())


def _num_units(num_episodes: int) -> int:
    """A power of two, which any number of processes that is one can share."""
    return min(MAX_UNITS, 1 << ((num_episodes - 1) // UNIT_SIZE).bit_length())


def _build_pool(make_env: MakeEnv, ring: TrajectoryRing, num_workers: int) -> ActorPool:
    if not num_workers:
        return SerialPool(make_env, ring)
    shared_by = min(num_workers, ring.shape.num_units).bit_length() - 1
    return ProcessPool(make_env, ring, 1 << shared_by)
