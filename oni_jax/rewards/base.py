"""The interfaces of intrinsic rewards: what a reward learns (on the host), and what it pays (pure, jitted)."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.types import Annotation, Array, CaptionBatch, Item, PyTree, RewardOutput, StepCaptions, Trajectory


class Learning:
    """Learns nothing and asks nothing; others override what they need."""

    other_observations: Sequence[str] = ()  # that are read beside the captions

    def init(self, key: Array) -> PyTree:
        """Device state that scoring reads and `train_step` replaces: parameters, moments, running statistics."""
        del key
        return ()

    def queries(self) -> Sequence[Item]:
        """What the LLM should be asked, newest last. Items that were asked for before do no harm."""
        return ()

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        """Takes in answers of the LLM, or of the label store."""
        del annotations

    def steps_due(self) -> int:
        """Gradient steps that could be made now."""
        return 0

    def train_step(self, state: PyTree) -> PyTree:
        """Makes a few of the gradient steps that are due, and returns the new state. Called in every update."""
        return state

    def merge(self, scored: PyTree, trained: PyTree) -> PyTree:
        """One state of two: what scoring and what `train_step` made of the same one."""
        del scored
        return trained

    def metrics(self) -> Mapping[str, Array]:
        """Scalars of the newest gradient step, and counts."""
        return {}

    def save(self) -> Mapping[str, np.ndarray]:
        """What the host half has learnt and the label store does not hold, for the checkpoint; no empty arrays."""
        return {}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """The inverse of `save`, before anything was ingested."""
        del saved


class Seen(NamedTuple):
    """What a scorer sees on the device, S steps of B trajectories."""

    index: Array  # [S, B] int32, of the captions in those of `prepare`
    observations: Mapping[str, Array]  # that the captions are of, of `other_observations`, each [S, B, ...]


class Scorer(Learning):
    """Values captions, or observations, wherever they stand in a batch: S steps of B trajectories.

    What is paid for that is a combinator's part, see `rewards.combine`.
    """

    def observe_captions(self, captions: CaptionBatch) -> None:
        """Takes in the captions of a batch [S, B]: what to ask about, what to learn from. Called once a batch."""
        del captions

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        """Table look-ups for a batch; arrays of fixed shapes that `raw_values` receives as `features`."""
        del captions
        return {}

    def raw_values(self, state: PyTree, seen: Seen, features: Mapping[str, Array]) -> Array:
        """What values are made of, [S, B] float32: labels, probabilities, similarities, a model's own numbers."""
        raise NotImplementedError

    def track(self, state: PyTree, raw: Array) -> PyTree:
        """The state with its running statistics brought up to date by raw values of a batch.

        Several devices each have a shard of them: `parallel.gathered` gives all.
        """
        del raw
        return state

    def normalise(self, state: PyTree, raw: Array) -> Array:
        """Values of raw ones, of any shape: normalised, thresholded."""
        del state
        return raw


class LookUp(Scorer):
    """Values each caption by a number that the host looks up."""

    def look_up(self, caption: bytes) -> float:
        raise NotImplementedError

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        values = np.array([self.look_up(caption) for caption in captions.messages], np.float32)
        return {"values": values[captions.index]}

    def raw_values(self, state: PyTree, seen: Seen, features: Mapping[str, Array]) -> Array:
        return features["values"]


class Reward(Learning):
    """An intrinsic reward that is always 0; others override what they need.

    `score` runs inside the learner's jitted update and must be pure. Everything else runs on the host.
    """

    captions_read: Collection[str] = ()  # which ends' captions are read: `own`, `caused`; see StepCaptions
    final_observations: Collection[str] = ()  # that are read of ended episodes, see Trajectory
    scorer: Scorer | None = None  # that values captions, and learns, if there is one

    @property
    def learning(self) -> Learning:
        """What learns."""
        return self.scorer or self

    def observe(self, captions: StepCaptions) -> None:
        """Takes in the captions of a batch that are read: what to ask about, what to learn from. Once a batch."""
        del captions

    def prepare(self, captions: StepCaptions) -> Mapping[str, np.ndarray]:
        """Table look-ups for a batch; arrays of fixed shapes that `score` receives as `features`."""
        del captions
        return {}

    def score(self, state: PyTree, trajectory: Trajectory, features: Mapping[str, Array], key: Array) -> RewardOutput:
        """Rewards [T, B] float32 of a batch, before the coefficient, and the new state; it may be a gradient step's.

        All of it runs on each of several devices, with the device's own shard of the batch, whose captions alone
        `features` are of. What the new state is made of comes from `parallel.mean` or `parallel.gathered`, so that it
        is the same everywhere.

        Args:
            key: of this update, the same on every device.
        """
        del features, key
        return RewardOutput(0.0 * trajectory.rewards, state)
