"""A plugin, as users write them: potential-based shaping by what a corridor's captions tell of the way to its exit.

Use: --plugin tests.support.corridor_plugin --plugin tests.support.potential_plugin --llm_reward_type nearness
     --llm_reward_coeff 1
"""

import re

from oni_jax.rewards.base import LookUp
from oni_jax.rewards.combine import Potential
from oni_jax.rewards.registry import RewardContext, RewardType, register_reward

WAY = re.compile(rb"exit is (\d+) steps")


def nearness(caption: bytes) -> float:
    """-0.1 for each step to the exit."""
    found = WAY.search(caption)
    return -0.1 * int(found[1]) if found else 0.0


class Nearness(LookUp):
    """Values captions by `nearness`."""

    def look_up(self, caption: bytes) -> float:
        return nearness(caption)


def make(context: RewardContext) -> Potential:
    return Potential(Nearness(), context.config.learner.gamma, context.frozen)


register_reward("nearness", RewardType(make))
