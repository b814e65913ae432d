"""One interface of intrinsic rewards, in two halves: scoring (pure, jitted) and learning (a no-op by default)."""

from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.types import Annotation, Array, CaptionBatch, PyTree, RewardOutput, Trajectory

Item = tuple[bytes, ...]


class Reward:
    """An intrinsic reward that is always 0 and learns nothing; others override what they need.

    `score` runs inside the learner's jitted update and must be pure. Everything else runs on the host.
    """

    other_observations: Sequence[str] = ()  # that `score` reads beside the captions

    def init(self, key: Array) -> PyTree:
        """Device state that `score` reads and `train_step` replaces: parameters, moments, running statistics."""
        del key
        return ()

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        """Table look-ups for a batch; arrays of fixed shapes that `score` receives as `features`."""
        del captions
        return {}

    def score(self, state: PyTree, trajectory: Trajectory, features: Mapping[str, Array]) -> RewardOutput:
        """Rewards [T, B] float32 of a batch, before the count and the coefficient.

        Several devices run it each on a shard of the batch, whose captions alone `features` are of. What the new state
        is made of comes from `parallel.gathered`, so that it is the same everywhere.
        """
        return RewardOutput(self.from_raw(state, self.raw_rewards(state, trajectory, features)), state)

    def raw_rewards(self, state: PyTree, trajectory: Trajectory, features: Mapping[str, Array]) -> Array:
        """What rewards are made of, [T, B] float32: labels, probabilities, similarities, a model's own numbers."""
        del state, features
        return 0.0 * trajectory.rewards

    def from_raw(self, state: PyTree, raw: Array) -> Array:
        """Rewards of raw ones, of any shape: normalised, thresholded."""
        del state
        return raw

    def requests(self, captions: CaptionBatch) -> Sequence[Item]:
        """What the LLM should be asked because of this batch, newest last; called once a batch.

        Items that were asked for before do no harm.
        """
        del captions
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
        """One state of two: what `score` and what `train_step` made of the same one."""
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
