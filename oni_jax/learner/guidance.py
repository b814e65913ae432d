"""The beginning of a run: from which reward on the policy learns, and how often an earlier one acts in its stead.

Source: ELLM's downstream training, Du et al. 2023, arXiv 2302.06692, whose flags these are.
"""

from collections.abc import Callable

import numpy as np

from oni_jax.config import PretrainedConfig
from oni_jax.types import PyTree

UNGUIDED = PretrainedConfig()
REWARD = 1.0  # the sum of rewards that has a run begin, where it waits for some


class Guidance:
    """The policy's and the guide's parts in a run.

    Args:
        settings: of the run.
        batch_size: environment steps of an update, of all processes.
        params_of: (the policy's parameters, probability that the guide acts [] float32) -> those to act with.
        reward_sum: of all steps so far.
        updates_before: made before the sum was REWARD.
    """

    def __init__(
        self,
        settings: PretrainedConfig = UNGUIDED,
        batch_size: int = 1,
        params_of: Callable[[PyTree, np.float32], PyTree] = lambda params, probability: params,
        reward_sum: float = 0.0,
        updates_before: int = 0,
    ):
        self._settings, self._batch_size, self._params_of = settings, batch_size, params_of
        self.reward_sum, self.updates_before = reward_sum, updates_before

    @property
    def may_wait(self) -> bool:
        """True where the next batch may be one that nothing is learnt from."""
        return self._settings.train_after_reward and self.reward_sum < REWARD

    def take(self, mean_reward: float, version: int) -> bool:
        """Takes in a batch's mean reward, and the version that learnt from it. Returns whether to keep the update."""
        if self.reward_sum < REWARD:
            self.updates_before = version
        self.reward_sum += mean_reward * self._batch_size
        return not self.may_wait

    def acting_params(self, version: int, params: PyTree) -> PyTree:
        """Returns the parameters to act with from those of the policy, after so many updates."""
        return self._params_of(params, np.float32(self.guide_probability(version)))

    def guide_probability(self, version: int) -> float:
        """Returns the probability that the guide acts, after so many updates."""
        settings = self._settings
        if settings.decay_after_reward:
            version = version - self.updates_before if self.reward_sum >= REWARD else 0
        left = 1 - version * self._batch_size / settings.guide_steps if settings.guide_steps else 1.0
        return settings.guide_prob * max(0.0, left)
