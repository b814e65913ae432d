"""What a run's rewards give for the steps of one episode."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from oni_jax.inspection import RunReward
from oni_jax.types import CaptionBatch, StepCaptions, Trajectory
from oni_jax.viewing.session import running_counts


class EpisodeRewards:
    """Intrinsic rewards by those of a run, which learn nothing meanwhile.

    Args:
      run: its rewards.
      num_at_once: steps that are scored together.

    Attributes:
      observations: names of those that they read beside the message.
    """

    def __init__(self, run: RunReward, num_at_once: int = 128):
        self._run, self._num_at_once = run, num_at_once
        self._at_obs = run.config.reward.intrinsic_reward_at == "obs"
        self.observations = run.rewards.other_observations
        self._score = jax.jit(run.rewards.score)

    def of_steps(
        self,
        messages: Sequence[bytes],
        observations: Mapping[str, np.ndarray],
        counts: Sequence[int] = (),
        terminated: bool = False,
    ) -> np.ndarray:
        """Sum of the rewards [L] float32 of L >= 1 steps, before the coefficients.

        Args:
          messages: L + 1, before each action and at the end.
          observations: [L + 1, ...] each of `self.observations`.
          counts: how often the messages were there, L + 1; as in an episode from its first one on when left out.
          terminated: whether the last step ended the episode by its own rules.
        """
        num_steps = len(messages) - 1
        seen = np.array(counts or running_counts(messages), np.float32)
        parts = []
        for start in range(0, num_steps, self._num_at_once):
            # The last chunk is filled up with the last message.
            rows = np.minimum(np.arange(start, start + self._num_at_once + 1), num_steps)
            zeros = np.zeros((self._num_at_once, 1), np.float32)
            both = {name: x[rows][:, None] for name, x in observations.items()}
            known = {
                "observations": both,
                "own_counts": seen[rows[:-1]][:, None],
                "caused_counts": seen[rows[1:]][:, None],
                "rewards": zeros,
                "terminations": (rows[1:] == num_steps)[:, None] & terminated,
                "truncations": zeros > 0,
                "final_observations": {name: x[1:] for name, x in both.items()},
            }
            captions = StepCaptions(*(_captions([messages[row] for row in side]) for side in (rows[:-1], rows[1:])))
            features = self._run.rewards.prepare(captions)
            trajectory = Trajectory(**{**dict.fromkeys(Trajectory._fields, zeros), **known})
            scored = self._score(self._run.state, trajectory, features, np.zeros(2, np.uint32))
            parts.append(np.asarray(scored.rewards)[:, :, 0].sum(axis=0))
        return np.concatenate(parts)[:num_steps]

    def of_messages(
        self, messages: Sequence[bytes], observations: Mapping[str, np.ndarray], terminated: bool = False
    ) -> np.ndarray:
        """As `of_steps`, [L + 1]: with 0 for the last or the first message, which no step is rewarded for."""
        rewards = self.of_steps(messages, observations, terminated=terminated)
        return np.pad(rewards, (0, 1) if self._at_obs else (1, 0))


def _captions(messages: Sequence[bytes]) -> CaptionBatch:
    distinct = {message: i for i, message in enumerate(dict.fromkeys(messages))}
    return CaptionBatch(list(distinct), np.array([[distinct[message]] for message in messages], np.int32))
