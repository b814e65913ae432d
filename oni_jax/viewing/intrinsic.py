"""Intrinsic rewards of a run for the steps of one episode."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from oni_jax.evaluation.inspection import RunReward
from oni_jax.ops.captions import running_counts
from oni_jax.types import CaptionBatch, StepCaptions, Trajectory


class EpisodeRewards:
    """Scores steps with the rewards of a run, without training them.

    Args:
      run: the rewards.
      num_at_once: steps scored together.

    Attributes:
      observations: names of those that the rewards read.
      labels: of the rewards that are summed.
      left_out: labels of those that only training knows, and why.
    """

    def __init__(self, run: RunReward, num_at_once: int = 128):
        self._run, self._num_at_once = run, num_at_once
        read = (*run.rewards.other_observations, *run.rewards.final_observations)
        self.observations = list(dict.fromkeys(read))
        reasons = {label: own.only_in_training for label, own in zip(run.rewards.labels, run.rewards.rewards)}
        self.left_out = {label: reason for label, reason in reasons.items() if reason}
        self.labels = [label for label in reasons if label not in self.left_out]
        self._rows = [i for i, reason in enumerate(reasons.values()) if not reason]
        self._score = jax.jit(run.rewards.score)

    def of_steps(
        self,
        captions: Sequence[bytes],
        observations: Mapping[str, np.ndarray],
        counts: Sequence[int] = (),
        terminated: bool = False,
    ) -> np.ndarray:
        """Returns the sum of the rewards [L] float32 for L >= 1 steps, before the coefficients; see `_of_each`."""
        return self._of_each(captions, observations, counts, terminated).sum(axis=0)

    def _of_each(
        self,
        captions: Sequence[bytes],
        observations: Mapping[str, np.ndarray],
        counts: Sequence[int],
        terminated: bool,
    ) -> np.ndarray:
        """Returns the rewards [K, L] float32 for L >= 1 steps, before the coefficients.

        Args:
          captions: L + 1, before each action and at the end.
          observations: [L + 1, ...] each of `self.observations`.
          counts: episodic counts of the captions, L + 1; counted from the first one when left out.
          terminated: whether the last step terminated the episode.
        """
        num_steps = len(captions) - 1
        seen = np.array(counts or running_counts(captions), np.float32)
        parts = []
        for start in range(0, num_steps, self._num_at_once):
            # The last chunk is padded with the last caption.
            rows = np.minimum(np.arange(start, start + self._num_at_once + 1), num_steps)
            zeros = np.zeros((self._num_at_once, 1), np.float32)
            both = {name: x[rows][:, None] for name, x in observations.items()}
            fields: dict[str, Any] = dict.fromkeys(Trajectory._fields, zeros) | {
                "observations": both,
                "own_counts": seen[rows[:-1]][:, None],
                "caused_counts": seen[rows[1:]][:, None],
                "rewards": zeros,
                "terminations": (rows[1:] == num_steps)[:, None] & terminated,
                "truncations": zeros > 0,
                "final_observations": {name: x[1:] for name, x in both.items()},
            }
            own, caused = (_caption_batch([captions[row] for row in end]) for end in (rows[:-1], rows[1:]))
            own = own._replace(observations={name: x[:-1] for name, x in both.items()})
            caused = caused._replace(observations={name: x[1:] for name, x in both.items()})
            features = self._run.rewards.prepare(StepCaptions(own, caused))
            trajectory = Trajectory(**fields)
            scored = self._score(self._run.state, trajectory, features, np.zeros(2, np.uint32))
            parts.append(np.asarray(scored.rewards)[self._rows, :, 0])
        return np.concatenate(parts, axis=1)[:, :num_steps]

    def of_captions(
        self, captions: Sequence[bytes], observations: Mapping[str, np.ndarray], terminated: bool = False
    ) -> np.ndarray:
        """Returns the sum of the rewards [L + 1] for the captions that they are paid for, or that a step has led to."""
        rewards = self._of_each(captions, observations, (), terminated)
        own = [self._run.rewards.rewards[row].pays_for == "own" for row in self._rows]
        return np.sum([np.pad(x, (0, 1) if is_own else (1, 0)) for x, is_own in zip(rewards, own)], axis=0)


def _caption_batch(captions: Sequence[bytes]) -> CaptionBatch:
    unique = {caption: i for i, caption in enumerate(dict.fromkeys(captions))}
    return CaptionBatch(list(unique), np.array([[unique[caption]] for caption in captions], np.int32))
