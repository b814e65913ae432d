"""The beginning of a run: the reward from which on the policy learns, and the guide, which acts in its stead.

Source: ELLM's downstream training, Du et al. 2023, arXiv 2302.06692, whose flags these are.
"""

import math
from collections.abc import Callable

import numpy as np

from oni_jax.settings.learning import PretrainedConfig
from oni_jax.types import PyTree

UNGUIDED = PretrainedConfig()
REWARD = 1.0 - 1e-3  # the sum of rewards that has a run begin, where it waits for some; less what is lost by rounding


class Guidance:
    """The policy's and the guide's parts in a run.

    Args:
        settings: settings of the run.
        batch_size: environment steps of an update, of all processes.
        params_of: (the policy's parameters, probability that the guide acts [] float32) -> those to act with.
        env_steps: so far.
        reward_sum: sum of these steps' rewards.
        steps_before: those before the sum was REWARD.
    """

    def __init__(
        self,
        settings: PretrainedConfig = UNGUIDED,
        batch_size: int = 1,
        params_of: Callable[[PyTree, np.float32], PyTree] = lambda params, probability: params,
        env_steps: int = 0,
        reward_sum: float = 0.0,
        steps_before: int = 0,
    ):
        self._settings, self._batch_size, self._params_of = settings, batch_size, params_of
        self._env_steps, self.reward_sum, self.steps_before = env_steps, reward_sum, steps_before

    @property
    def waits(self) -> bool:
        """True while batches are not learnt from, unless one brings the reward."""
        return self._settings.train_after_reward and self.reward_sum < REWARD

    def take(self, mean_reward: float) -> bool:
        """Takes in a batch's mean reward. Returns True if its update is kept."""
        if self.reward_sum < REWARD:  # once reached, penalties do not undo it
            self.steps_before = self._env_steps
            self.reward_sum += mean_reward * self._batch_size if math.isfinite(mean_reward) else 0.0
        self._env_steps += self._batch_size
        return not self.waits

    def acting_params(self, params: PyTree) -> PyTree:
        """Returns the parameters to act with from those of the policy."""
        return self._params_of(params, np.float32(self.guide_probability))

    @property
    def guide_probability(self) -> float:
        settings, steps = self._settings, self._env_steps
        if settings.decay_after_reward:
            steps = steps - self.steps_before if self.reward_sum >= REWARD else 0
        left = 1 - steps / settings.guide_steps if settings.guide_steps else 1.0
        return settings.guide_prob * max(0.0, left)
