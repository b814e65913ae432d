"""Intrinsic rewards of steps outside training: what is scored, and sums of it over episodes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from oni_jax.evaluation.playing import Step
from oni_jax.ops.episode_sums import episode_ends, sum_rewards
from oni_jax.types import EnvSpec
from oni_jax.worlds.actors.captions import CaptionTable

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

    spec: EnvSpec  # spec of the environments, with the observations that policy and rewards read
    labels: Sequence[str]  # labels of the rewards
    coeffs: np.ndarray  # [K]; training adds the rewards up with these
    pays_before: np.ndarray  # [K] bool; a reward is one for the state before the step, else for what the step led to
    source: str  # whose rewards, in words
    problem: str  # why the rewards can't be computed, as found so far; "" while they can

    def score(self, steps: Steps) -> np.ndarray:
        """Returns the rewards [K, T, N] before their coefficients; NaN where there is a problem."""
        ...


class NewestSteps:
    """The newest steps of a group, at most T of them.

    Args:
        spec: of the environments, with what the rewards read.
        num_at_once: T.
    """

    def __init__(self, spec: EnvSpec, num_at_once: int = NUM_AT_ONCE):
        self._names, self._size = spec.final_observations, num_at_once
        self._rows: Steps | None = None
        self.num = -1  # before the first observations

    def add(self, step: Step) -> bool:
        """Takes in the first observations or the next step. Returns whether there is no room for another."""
        rows = self._rows = self._rows or self._begin(step)
        if self.num >= 0:
            rows.actions[self.num] = step.actions
            for name, finals in rows.finals.items():
                finals[self.num] = step.finals[name]
        self.num += 1
        rows.records[self.num], rows.texts[self.num] = step.records, step.texts
        return self.num == self._size

    def _begin(self, step: Step) -> Steps:
        size, count = self._size, len(step.records)
        records = np.zeros((size + 1, count), step.records.dtype)
        finals = {name: np.zeros((size, *step.finals[name].shape), step.finals[name].dtype) for name in self._names}
        texts, actions = np.zeros((size + 1, count), step.texts.dtype), np.zeros((size, count), np.int32)
        return Steps(records, texts, actions, finals, step.captions)

    def take(self) -> tuple[Steps, int]:
        """Returns the steps, and how many they are, and keeps the newest observations alone.

        Of fewer than T, the last observation stands in for those that are missing.
        """
        assert self._rows
        rows, num = self._rows, self.num
        index = np.minimum(np.arange(self._size + 1), num)
        found = rows._replace(records=rows.records[index], texts=rows.texts[index])
        rows.records[0], rows.texts[0], self.num = rows.records[num], rows.texts[num], 0
        return found, num


class EpisodeReturns:
    """Sums of K rewards over the episodes of an evaluation.

    Args:
        scorer: of the rewards.
    """

    def __init__(self, scorer: Scorer):
        self._scorer = scorer
        self._groups: dict[int, NewestSteps] = {}
        self._sums: dict[int, np.ndarray] = {}  # group -> [K, N], sums of the running episodes
        self._ending: dict[int, list[int]] = {}  # group -> indices of episodes, ordered by time, then by row
        self._ended: dict[int, np.ndarray] = {}  # index of the episode -> [K] float32

    def add(self, step: Step) -> None:
        """Takes in a group's first observations or next step."""
        group = self._groups.setdefault(step.group, NewestSteps(self._scorer.spec))
        self._ending.setdefault(step.group, []).extend(step.episodes[step.ended].tolist())
        if group.add(step):
            self._score(step.group)

    def finish(self) -> Mapping[int, Mapping[str, float]]:
        """Scores the steps that are left. Returns each episode's by its index and by label; none after a problem."""
        for index, group in self._groups.items():
            if group.num > 0:
                self._score(index)
        rows = {} if self.not_reported else self._ended
        return {index: dict(zip(self._scorer.labels, row.tolist())) for index, row in rows.items()}

    @property
    def not_reported(self) -> Mapping[str, str]:
        """Labels of the rewards, and why they could not be computed; empty while they could."""
        problem = self._scorer.problem
        if not problem and not all(np.isfinite(row).all() for row in self._ended.values()):
            problem = "its rewards are not finite"
        return dict.fromkeys(self._scorer.labels if problem else (), problem)

    def _score(self, group: int) -> None:
        steps, num = self._groups[group].take()
        rewards, records = self._scorer.score(steps)[:, :num], steps.records[: num + 1]
        before = self._sums.get(group, np.zeros((len(rewards), records.shape[1])))
        self._sums[group], found = sum_rewards(before, rewards, records["is_first"][:-1], episode_ends(records))
        self._ended.update(zip(self._ending.pop(group), found, strict=True))


def beside_states(rewards: np.ndarray, pays_before: np.ndarray) -> np.ndarray:
    """Returns the rewards [K, L] of an episode's steps beside the states [K, L+1] that they are paid for."""
    shape = (len(rewards), rewards.shape[1] + 1)
    found = [np.pad(row, (0, 1) if is_before else (1, 0)) for row, is_before in zip(rewards, pays_before.tolist())]
    return np.array(found).reshape(shape)
