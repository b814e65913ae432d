"""A plugin, as users write them: potential-based shaping by what a corridor's captions tell of the way to its exit.

Use: --plugin tests.corridor_plugin --plugin tests.potential_plugin --llm_reward_type nearness --llm_reward_coeff 1
"""

import re
from collections.abc import Mapping

import numpy as np

from oni_jax.rewards.base import Scorer
from oni_jax.rewards.combine import Potential
from oni_jax.rewards.registry import RewardContext, RewardType, register_reward
from oni_jax.types import Array, CaptionBatch, PyTree

WAY = re.compile(rb"exit is (\d+) steps")


def nearness(caption: bytes) -> float:
    """-0.1 for each step to the exit."""
    found = WAY.search(caption)
    return -0.1 * int(found[1]) if found else 0.0


class Nearness(Scorer):
    """Values captions by `nearness`."""

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        values = np.array([nearness(caption) for caption in captions.messages], np.float32)
        return {"values": values[captions.index]}

    def raw_values(
        self, state: PyTree, index: Array, observations: Mapping[str, Array], features: Mapping[str, Array]
    ) -> Array:
        return features["values"]


def make(context: RewardContext) -> Potential:
    return Potential(Nearness(), context.config.learner.gamma, context.frozen)


register_reward("nearness", RewardType(make))
