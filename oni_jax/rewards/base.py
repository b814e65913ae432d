"""Interfaces of intrinsic rewards: learning, driven by the host, and scoring, which is pure and jitted."""

import itertools
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.envs.goals import Suggested
from oni_jax.host.reporting import report
from oni_jax.ops.bounds import bounded
from oni_jax.rewards.blame import blaming, finite
from oni_jax.settings.fields import UserError
from oni_jax.types import (
    Annotation,
    Array,
    CaptionBatch,
    GoalModelFn,
    Item,
    PyTree,
    RewardOutput,
    StepCaptions,
    Trajectory,
)

MAX_FAILED = 100  # look-ups, where none gave a number: the run ends


def newest(newest_first: Iterable[Item], limit: int) -> list[Item]:
    """Returns the first `limit` items, in reverse order, without reading further."""
    return list(itertools.islice(newest_first, limit))[::-1]


class Learning:
    """Base class of learners: it learns nothing and asks nothing; subclasses override methods."""

    other_observations: Sequence[str] = ()  # names of observations read in addition to the captions

    def init(self, key: Array) -> PyTree:
        """Returns the device state, read by scoring and replaced by `train_step`: parameters, running statistics."""
        return ()

    def queries(self, limit: int = sys.maxsize) -> Sequence[Item]:
        """Returns the newest `limit` items to ask the LLM about, newest last. Those returned before may come again."""
        return ()

    def asked_as(self, caption: bytes) -> bytes:
        """Returns a caption as queries word it."""
        return caption

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        """Takes in answers from the LLM or the label store."""
        del annotations

    def suggested(self) -> Mapping[bytes, np.ndarray]:
        """Returns what goals are worth in states with these captions, as found out since the last call.

        Each [G + 1] float32; the last number counts words that name no goal.
        """
        return {}

    def suggests(self, state: PyTree, answers: Sequence[Annotation]) -> Suggested | None:
        """Returns the goals that an LLM suggests, for play outside training; None: it is asked for none.

        Args:
            state: state on the device.
            answers: all there are.
        """
        return None

    goal_model: GoalModelFn | None = None

    def acting(self, state: PyTree) -> PyTree:
        """Takes in the device state before a batch. Returns the goal model's parameters; (): there is none."""
        return ()

    def doubts(self, state: PyTree, asked: Sequence[bytes]) -> np.ndarray | None:
        """Returns how much of each answer a model expects to get wrong [N] float32; None: there is no model.

        Args:
            state: state on the device.
            asked: N captions, as queries say them.
        """
        return None

    def why_unknown(self, state: PyTree) -> str:
        """Returns why its values say nothing yet, for people; "": they do."""
        return ""

    def steps_due(self) -> int:
        """Returns the number of gradient steps that are due."""
        return 0

    def train_step(self, state: PyTree) -> PyTree:
        """Makes some of the gradient steps that are due, if any, and returns the new state."""
        return state

    def merge(self, scored: PyTree, trained: PyTree) -> PyTree:
        """Merges the states that scoring and `train_step` returned for the same one.

        It is the latter's where a class has a `train_step`, else the former's; where both change it, override this.
        """
        return scored if type(self).train_step is Learning.train_step else trained

    def metrics(self) -> Mapping[str, Array]:
        """Returns scalars of the newest gradient step, and counts."""
        return {}

    def state_metrics(self, state: PyTree) -> Mapping[str, Array]:
        """Returns scalars that the device state holds, of a gradient step inside `score`."""
        return {}

    def save(self) -> Mapping[str, np.ndarray]:
        """Returns the host's state that the label store does not hold, for the checkpoint; no empty arrays."""
        return {}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restores what `save` returned, before anything is ingested."""
        del saved


class Seen(NamedTuple):
    """Inputs of a scorer on the device, S steps of B trajectories."""

    index: Array  # [S, B] int32, into the captions given to `prepare`
    observations: Mapping[str, Array]  # `other_observations` at the captions' steps, each [S, B, ...]


class Scorer(Learning):
    """Values captions, or observations, one by one: S steps of B trajectories.

    A combinator turns the values into rewards, see `rewards.combine`.
    """

    def observe_captions(self, captions: CaptionBatch) -> None:
        """Takes in the captions of a batch [S, B], to ask about and to learn from. Called once a batch."""
        del captions

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        """Looks up what a batch needs: arrays of fixed shapes, which `raw_values` receives as `features`."""
        return {}

    def raw_values(self, state: PyTree, seen: Seen, features: Mapping[str, Array]) -> Array:
        """Returns raw scores [S, B] float32: labels, probabilities, similarities, a model's outputs."""
        raise NotImplementedError

    def track(self, state: PyTree, raw: Array) -> PyTree:
        """Updates the state's running statistics with the raw scores of a batch.

        Each of several devices has a shard of these: `parallel.all_gather` returns all.
        """
        return state

    def normalise(self, state: PyTree, raw: Array) -> Array:
        """Returns the values of raw scores of any shape: normalised, thresholded."""
        return raw


class LookUp(Scorer):
    """Values each caption by a number that the host looks up. A plugin's that gives none now and then counts as 0."""

    num_batches = num_looked_up = num_failed = 0

    def look_up(self, caption: bytes) -> float:
        raise NotImplementedError

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        self.num_batches += 1
        values = bounded([self._number(captions, i) for i in range(len(captions.captions))])
        return {"values": values[captions.index]}

    def metrics(self) -> Mapping[str, Array]:
        return {"look_ups_failed": self.num_failed} if self.num_failed else {}

    def _number(self, captions: CaptionBatch, i: int) -> int | float:
        caption = captions.captions[i]
        try:
            with blaming([self], f"`look_up` of {caption[:80]!r}"):
                number = finite(self.look_up(caption))
        except UserError as error:
            self._count_failure(error, np.argwhere(captions.index == i))
            return 0.0
        self.num_looked_up += 1
        return number

    def _count_failure(self, error: UserError, steps: np.ndarray) -> None:
        """Says it at the 1st, 10th, 100th failure. Raises the error where there were as many, and nothing else."""
        self.num_failed += 1
        if self.num_failed >= MAX_FAILED and not self.num_looked_up:
            raise error
        if f"{self.num_failed}".strip("0") == "1":
            where = f", first at step {steps[0][0]} of trajectory {steps[0][1]}" if len(steps) else ""
            report(f"warning: batch {self.num_batches}{where}: {error}; it counts as 0 ({self.num_failed} so far)")

    def raw_values(self, state: PyTree, seen: Seen, features: Mapping[str, Array]) -> Array:
        return features["values"]


class Reward(Learning):
    """An intrinsic reward that is always 0; subclasses override methods.

    `score` runs inside the learner's jitted update and must be pure. Everything else runs on the host.
    """

    captions_read: Collection[str] = ()  # ends whose captions are read: `before`, `caused`; see StepCaptions
    reads_counts: bool = True  # `score` reads the trajectory's episodic counts; else the host need not count
    final_observations: Collection[str] = ()  # names of those read at an episode's end, see Trajectory
    reads_answers: bool = True  # `score` depends on the answers that it ingested
    only_in_training: str = ""  # why its rewards of an evaluation's steps are unknown, for people; "": they are known
    scorer: Scorer | None = None  # values captions, and learns; None: the reward itself does
    pays_for: str = ""  # `before` or `caused`: steps are paid for that end's caption and its count alone; "": otherwise

    @property
    def learning(self) -> Learning:
        """The part that learns: the scorer, or else the reward itself."""
        return self.scorer or self

    def observed_names(self) -> Sequence[str]:
        """Returns those of `other_observations` that `observe` reads: several processes all-gather them."""
        return () if type(self).observe is Reward.observe else self.other_observations

    def observe(self, captions: StepCaptions) -> None:
        """Takes in the `captions_read` of a batch, to ask about and to learn from. Called once a batch."""
        del captions

    def prepare(self, captions: StepCaptions) -> Mapping[str, np.ndarray]:
        """Looks up what a batch needs: arrays of fixed shapes, which `score` receives as `features`."""
        return {}

    def score(self, state: PyTree, trajectory: Trajectory, features: Mapping[str, Array], key: Array) -> RewardOutput:
        """Returns rewards [T, B] float32 of a batch, before the coefficient, and the new state; it may learn here.

        Runs on each of several devices, with the device's shard of the batch and the features of that shard. The new
        state must be computed from `parallel.mean` or `parallel.all_gather`, so that it is replicated.

        Args:
            key: key of this update, the same on every device.
        """
        return RewardOutput(0.0 * trajectory.rewards, state)
