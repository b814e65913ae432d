"""The loop in which an agent plays episodes: of evaluations, films, play in the terminal, segments and pairs.

Environments stand side by side in groups, in this process or in others. Each plays every so-manieth episode; its
observations always have the same row of an inference batch of the same size, so that no episode depends on the others.
Results are then bit-identical on the same kind of machine.
"""

import collections
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

import numpy as np

from oni_jax.evaluation.episodes import GROUP_SIZE, NUM_SLOTS, Episode, end_of
from oni_jax.evaluation.progress import Progress
from oni_jax.host.reporting import report
from oni_jax.host.runtime import ChildError, Every, StopRequest
from oni_jax.types import EnvSpec
from oni_jax.worlds.actors.captions import CaptionTable
from oni_jax.worlds.actors.group import MakeEnv
from oni_jax.worlds.actors.pool import ActorPool
from oni_jax.worlds.actors.process_pool import ProcessPool
from oni_jax.worlds.actors.ring import RingShape, TrajectoryRing
from oni_jax.worlds.actors.serial_pool import SerialPool

MAX_GROUPS = NUM_SLOTS // GROUP_SIZE
ENDLESS = np.iinfo(np.int32).max  # a number of episodes
WAIT_SECS = 0.2
PROGRESS_SECS = 10.0


class Agent(Protocol):
    """Chooses actions, which depend on the episode's index and observations alone."""

    def act(self, group: int, records: np.ndarray, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Returns a group's next actions; called for every step of its environments, in order.

        Args:
          group: its index.
          records: [N], the observations.
          episodes: [N] int32, the indices of their episodes.
          steps: [N] int32, the steps taken in these so far.

        Returns:
          Actions [N] int32.
        """
        ...


class RecordedAgent(Agent):
    """Repeats the actions of episodes, by their indices."""

    def __init__(self, actions: Mapping[int, bytes]):
        self._actions = actions

    def act(self, group: int, records: np.ndarray, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        rows = [self._actions[episode] for episode in episodes.tolist()]
        # An episode that goes another way may be longer.
        return np.array([row[step] if step < len(row) else 0 for row, step in zip(rows, steps.tolist())], np.int32)


class Step(NamedTuple):
    """A group's N observations after a step of its environments, or the first ones. The next overwrites the arrays."""

    group: int
    records: np.ndarray  # [N]; where an episode ended: the next one's first observation
    finals: np.ndarray  # [N]; where an episode ended: its final observation
    texts: np.ndarray  # [N] TEXT_DTYPE
    captions: CaptionTable  # holds the texts
    actions: np.ndarray  # [N] int32, taken before; not of the first observations
    stats: np.ndarray  # [N, K] float32; where an episode ended: its statistics
    episodes: np.ndarray  # [N] int32, the indices of the episodes that took the step
    steps: np.ndarray  # [N] int32, steps of these so far; all 0 of the first observations
    ended: Sequence[int]  # rows whose episodes ended with the step

    def seen(self, row: int) -> tuple[np.ndarray, bytes]:
        """Returns the record and the caption that an action led to, those of the end where it ended the episode."""
        record = (self.finals if row in self.ended else self.records)[row]
        return record, self.captions[int(self.texts["outcome_caption"][row])]


class Envs:
    """G groups of N environments; number s of all plays the episodes first + s, first + s + stride, and so on.

    Args:
      make_env: makes a group's environments.
      spec: of these.
      num_groups, group_size: G and N.
      first: index of an episode.
      stride: default: G N.
      num_workers: maximum of actor processes, which needs G to be a power of 2; 0: this process steps them.
    """

    def __init__(
        self,
        make_env: MakeEnv,
        spec: EnvSpec,
        num_groups: int = 1,
        group_size: int = 1,
        first: int = 0,
        stride: int = 0,
        num_workers: int = 0,
    ):
        self.ring = TrajectoryRing(spec, RingShape(num_groups, group_size, num_slots=num_groups, rollout=1))
        self.stride = stride or num_groups * group_size
        self._make_env, self._num_workers = make_env, min(num_workers, num_groups)
        numbers = np.arange(num_groups * group_size, dtype=np.int32)
        self.first_episodes = first + numbers.reshape(num_groups, group_size)

    def pool(self) -> ActorPool:
        """Returns what steps the environments."""
        if not self._num_workers:
            return SerialPool(self._make_env, self.ring)
        return ProcessPool(self._make_env, self.ring, 1 << self._num_workers.bit_length() - 1)


def play(
    envs: Envs,
    agent: Agent,
    num_episodes: int,
    stop: StopRequest | None = None,
    on_wait: Callable[[], object] = lambda: None,
) -> Generator[Step]:
    """Plays the episodes whose indices are below `num_episodes`. Yields each group's first observations, and its steps.

    Args:
      envs: they are closed with the iterator.
      agent: new, without any core states. It is asked for the next actions when the next step is asked for.
      num_episodes: see above.
      stop: checked between steps.
      on_wait: called between steps.

    Raises:
      ChildError: an actor process died, or its engine failed to start a game.
    """
    ring, captions, episodes = envs.ring, CaptionTable(), envs.first_episodes.copy()
    steps = np.zeros_like(episodes)
    with closing(envs.pool()) as pool:
        pool.start()
        for group in range(len(episodes)):
            pool.dispatch(group, group, 0)  # one slot of the ring per group, always row 0
        while (episodes < num_episodes).any() and not stop:
            replies = pool.wait(WAIT_SECS)
            captions.add(replies.texts)
            for group in replies.done:
                records = ring.records[group, 0]
                ended = np.flatnonzero(records["terminated"] | records["truncated"]).tolist()
                outcome = ring.finals[group], ring.texts[group, 0], captions, ring.actions[group]
                before = ring.episode_stats[group], episodes[group].copy(), steps[group].copy()
                yield Step(group, records, *outcome, *before, ended)
                episodes[group, ended] += envs.stride
                steps[group, ended] = 0
                if (episodes[group] < num_episodes).any():
                    ring.actions[group] = agent.act(group, records, episodes[group], steps[group])
                    steps[group] += 1
                    pool.dispatch(group, group, 0)
            on_wait()


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
    on_step: Callable[[Step], object] = lambda step: None,
    progress_secs: float = PROGRESS_SECS,
) -> list[Episode]:
    """Returns the episodes 0, 1, ..., num_episodes - 1, in this order; after a stop request, those finished so far.

    Slot s, one of NUM_SLOTS environments in groups of GROUP_SIZE, plays the episodes s, s + NUM_SLOTS, and so on.

    Args:
      make_env: with the seed of `episodes.evaluation_seed`.
      spec: of its environments.
      agent: new, without any core states.
      num_episodes: at least 1.
      max_episode_steps: that of make_env.
      num_workers: maximum of actor processes; 0: environments are stepped by this process.
      stop: checked between steps.
      on_step: takes in the steps.
      progress_secs: between lines that say how far it is.

    Raises:
      ActorsLostError: see there.
    """
    # A power of two, divisible by the number of processes, a smaller one.
    num_groups = min(MAX_GROUPS, 1 << ((num_episodes - 1) // GROUP_SIZE).bit_length())
    envs = Envs(make_env, spec, num_groups, GROUP_SIZE, stride=NUM_SLOTS, num_workers=num_workers)
    log, due = _Log(spec, num_episodes, max_episode_steps), Every(progress_secs)
    progress = Progress(num_episodes, max_episode_steps, time.monotonic())

    def show_progress() -> None:
        if due():
            report(progress.line(len(log.episodes), log.num_steps, time.monotonic()))

    try:
        for step in play(envs, agent, num_episodes, stop, show_progress):
            on_step(step)
            log.add(step)
    except ChildError as error:
        raise ActorsLostError(error, sorted(log.episodes)) from None
    report(*envs.ring.notes())
    return sorted(log.episodes)


class _Log:
    """The episodes that have ended, and the actions of those that run."""

    def __init__(self, spec: EnvSpec, num_episodes: int, max_episode_steps: int):
        self._names, self._num_episodes, self._limit = spec.episode_stats, num_episodes, max_episode_steps
        self._actions: dict[int, bytearray] = collections.defaultdict(bytearray)  # keyed by the episode's index
        self.episodes: list[Episode] = []
        self.num_steps = 0  # steps of the requested episodes

    def add(self, step: Step) -> None:
        for episode, action, number in zip(step.episodes.tolist(), step.actions.tolist(), step.steps.tolist()):
            if number:
                self._actions[episode].append(action)
                self.num_steps += episode < self._num_episodes
        self.episodes += self._ended(step)

    def _ended(self, step: Step) -> Iterator[Episode]:
        for i in step.ended:
            index = int(step.episodes[i])
            actions = bytes(self._actions.pop(index))
            if index < self._num_episodes:
                stats = dict(zip(self._names, step.stats[i].tolist(), strict=True))
                is_truncated, reward = bool(step.records["truncated"][i]), float(step.records["reward"][i])
                yield Episode(index, stats, actions, end_of(stats, is_truncated, self._limit, reward))
