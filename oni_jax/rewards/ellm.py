"""ELLM (Du et al. 2023, arXiv 2302.06692): pays what reaches a goal suggested for the state; see `envs.goals`."""

from collections.abc import Mapping

import jax.numpy as jnp

from oni_jax.rewards.base import Reward
from oni_jax.rewards.combine import observations_after
from oni_jax.rewards.registry import RewardContext
from oni_jax.types import GOAL_REWARD, Array, PyTree, RewardOutput, Trajectory


class GoalReward(Reward):
    """Rewards what the environment pays for goals."""

    other_observations = final_observations = (GOAL_REWARD,)

    def score(self, state: PyTree, trajectory: Trajectory, features: Mapping[str, Array], key: Array) -> RewardOutput:
        return RewardOutput(observations_after(trajectory, GOAL_REWARD).astype(jnp.float32), state)


def make(context: RewardContext) -> GoalReward:
    del context  # the goals' settings are the environment's
    return GoalReward()
