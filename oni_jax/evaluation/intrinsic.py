"""Intrinsic returns of an evaluation's episodes, by the rewards that a player was trained with."""

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from oni_jax.ops.episode_sums import episode_ends, sum_rewards
from oni_jax.settings.fields import UserError
from oni_jax.types import EnvSpec
from oni_jax.worlds.actors.captions import CaptionTable
from oni_jax.worlds.actors.ring import TrajectoryRing

if TYPE_CHECKING:  # it imports this
    from oni_jax.evaluation.players import Player

NUM_AT_ONCE = 32  # steps of a group that are scored together, T below


class Steps(NamedTuple):
    """T steps of a group of N environments."""

    records: np.ndarray  # [T+1, N]
    texts: np.ndarray  # [T+1, N] TEXT_DTYPE
    actions: np.ndarray  # [T, N] int32
    finals: Mapping[str, np.ndarray]  # see `Trajectory.final_observations`
    captions: CaptionTable


class Scorer(Protocol):
    """K intrinsic rewards of steps, which don't learn from them."""

    spec: EnvSpec  # of the environments, with what policy and rewards read
    labels: Sequence[str]  # of the rewards

    def score(self, steps: Steps) -> np.ndarray:
        """Returns the rewards [K, T, N] before their coefficients. Raises UserError: a server or a file is away."""
        ...


class Scoring(NamedTuple):
    """Rewards that a player was trained with."""

    scorer: Scorer | None = None  # None: there is nothing to score
    not_reported: Mapping[str, str] = {}  # labels of those that can't be computed here, and why


LoadScoring = Callable[["Player"], Scoring]


class EpisodeReturns:
    """Sums of K rewards over the episodes of an evaluation.

    Args:
        scorer: of the rewards.
    """

    def __init__(self, scorer: Scorer):
        self._scorer, self._problem = scorer, ""  # why the rewards could not be computed
        self._captions = CaptionTable()
        self._groups: list[_Group] = []
        self._ended: dict[int, np.ndarray] = {}  # by the episode's index: [K] float32

    def begin(self, ring: TrajectoryRing) -> None:
        """Prepares for the groups of a ring."""
        self._groups = [_Group(ring, group, len(self._scorer.labels)) for group in range(ring.shape.num_groups)]

    def add_texts(self, texts: Iterable[tuple[int, bytes]]) -> None:
        """Takes in new texts, each with its id."""
        self._captions.add(texts)

    def add(self, group: int, ended: Sequence[int]) -> None:
        """Takes in a group's first observations or last step. ended: indices of the episodes that it ended."""
        own = self._groups[group]
        own.copy(ended)
        if own.num_steps == NUM_AT_ONCE:
            self._score(own)

    def finish(self) -> Mapping[int, Mapping[str, float]]:
        """Scores the steps that are left. Returns each episode's by its index and by label; none after a problem."""
        for group in self._groups:
            if group.num_steps > 0:
                self._score(group)
        rows = {} if self._problem else self._ended
        return {index: dict(zip(self._scorer.labels, row.tolist())) for index, row in rows.items()}

    @property
    def not_reported(self) -> Mapping[str, str]:
        """Labels of the rewards, and why they could not be computed; empty while they could."""
        return dict.fromkeys(self._scorer.labels if self._problem else (), self._problem)

    def _score(self, group: "_Group") -> None:
        try:
            if not self._problem:
                ended = group.sum(self._scorer, self._captions)
                if not all(np.isfinite(row).all() for row in ended.values()):
                    self._problem = "its rewards are not finite"
                self._ended.update(ended)
        except UserError as error:
            self._problem = str(error)
        except Exception as error:  # of a plugin: the episodes are not lost with it
            traceback.print_exc()
            self._problem = f"{type(error).__name__}: {error}".splitlines()[0]
        group.begin_again()


class _Group:
    """A group's newest steps, in the ring's slot of its number, and the sums of its running episodes."""

    def __init__(self, ring: TrajectoryRing, group: int, num_rewards: int):
        self._ring, self._group = ring, group
        size = ring.shape.group_size
        self._records = np.zeros((NUM_AT_ONCE + 1, size), ring.records.dtype)
        self._texts = np.zeros((NUM_AT_ONCE + 1, size), ring.texts.dtype)
        self._actions = np.zeros((NUM_AT_ONCE, size), np.int32)
        shown = {name: ring.finals[group][name] for name in ring.spec.final_observations}
        self._finals = {name: np.zeros((NUM_AT_ONCE, *x.shape), x.dtype) for name, x in shown.items()}
        self._sums = np.zeros((num_rewards, size))
        self._ended: list[int] = []  # indices of episodes, in order of time, then of the row
        self.num_steps = -1  # before the first observations

    def copy(self, ended: Sequence[int]) -> None:
        ring, group = self._ring, self._group
        if self.num_steps >= 0:
            self._actions[self.num_steps] = ring.actions[group]
            for name, rows in self._finals.items():
                rows[self.num_steps] = ring.finals[group][name]
        self.num_steps += 1
        self._records[self.num_steps], self._texts[self.num_steps] = ring.records[group, 0], ring.texts[group, 0]
        self._ended += ended

    def sum(self, scorer: Scorer, captions: CaptionTable) -> Mapping[int, np.ndarray]:
        """Continues the sums. Returns those [K] float32 of the episodes that ended."""
        num = self.num_steps
        # Of fewer steps than NUM_AT_ONCE, the last stands in for those that are missing.
        rows = np.minimum(np.arange(NUM_AT_ONCE + 1), num)
        steps = Steps(self._records[rows], self._texts[rows], self._actions, self._finals, captions)
        rewards = scorer.score(steps)[:, :num]
        is_first, is_over = self._records["is_first"][:num], episode_ends(self._records[: num + 1])
        self._sums, found = sum_rewards(self._sums, rewards, is_first, is_over)
        return dict(zip(self._ended, found, strict=True))

    def begin_again(self) -> None:
        """Keeps the newest observations alone."""
        self._records[0], self._texts[0] = self._records[self.num_steps], self._texts[self.num_steps]
        self.num_steps = 0
        self._ended.clear()
