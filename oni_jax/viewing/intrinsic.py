"""What a run's reward gives for the steps of one episode."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from oni_jax.inspection import RunReward
from oni_jax.rewards.messages import message_array
from oni_jax.types import Array, CaptionBatch, PyTree, Trajectory
from oni_jax.viewing.session import discount, running_counts


class EpisodeRewards:
    """Intrinsic rewards by a run's reward, which learns nothing meanwhile.

    Args:
      run: its reward.
      num_at_once: steps that are scored together.

    Attributes:
      observations: names of those that it reads beside the message.
    """

    def __init__(self, run: RunReward, num_at_once: int = 128):
        self._run, self._num_at_once = run, num_at_once
        self._at_obs = run.config.reward.intrinsic_reward_at == "obs"
        self.observations = run.reward.other_observations

        @jax.jit
        def score(state: PyTree, trajectory: Trajectory, features: Mapping[str, Array]) -> Array:
            return run.reward.from_raw(state, run.reward.raw_rewards(state, trajectory, features))

        self._score = score

    def undiscounted(self, messages: Sequence[bytes], observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """Rewards [L] float32 of L >= 1 steps, before counts and coefficient.

        Args:
          messages: L + 1, before each action and at the end.
          observations: [L + 1, ...] each of `self.observations`.
        """
        num_steps = len(messages) - 1
        rewarded = self._rewarded(messages)
        parts = []
        for start in range(0, num_steps, self._num_at_once):
            # The last chunk is filled up with the last step.
            steps = np.minimum(np.arange(start, start + self._num_at_once), num_steps - 1)
            rows = np.minimum(np.arange(start, start + self._num_at_once + 1), num_steps)
            own = [rewarded[step] for step in steps]
            distinct = list(dict.fromkeys(own))
            index = np.array([[distinct.index(message)] for message in own], np.int32)
            seen = {name: values[rows][:, None] for name, values in observations.items()}
            seen["message"] = message_array([messages[row] for row in rows])[:, None]
            nothing = dict.fromkeys(Trajectory._fields)
            known = {"observations": seen, "captions": index, "rewards": np.zeros(index.shape, np.float32)}
            features = self._run.reward.prepare(CaptionBatch(distinct, index))
            parts.append(np.asarray(self._score(self._run.state, Trajectory(**{**nothing, **known}), features))[:, 0])
        return np.concatenate(parts)[:num_steps]

    def discounted(self, messages: Sequence[bytes], observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """As `undiscounted`, of an episode from its first message on; divided by messages' counts as in training."""
        counts = np.array(self._rewarded(running_counts(messages)), np.float32)
        return discount(self.undiscounted(messages, observations), counts, self._run.config.reward.beta_count_exponent)

    def of_messages(self, messages: Sequence[bytes], observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """As `discounted`, [L + 1]: with 0 for the last or the first message, which no step is rewarded for."""
        rewards = self.discounted(messages, observations)
        return np.pad(rewards, (0, 1) if self._at_obs else (1, 0))

    def _rewarded(self, values: Sequence) -> Sequence:
        """Of L + 1 values of observations, the L of those that the steps are rewarded for."""
        return values[:-1] if self._at_obs else values[1:]
