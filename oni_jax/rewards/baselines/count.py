"""The baseline without an LLM: every caption is worth the same, whatever it says."""

from oni_jax.rewards.base import LookUp
from oni_jax.rewards.combine import Paid, pay
from oni_jax.rewards.registry import RewardContext


class EveryCaption(LookUp):
    """Values each caption 1, but the empty one."""

    def look_up(self, caption: bytes) -> float:
        return float(bool(caption))


def make(context: RewardContext) -> Paid:
    return pay(context, EveryCaption())
