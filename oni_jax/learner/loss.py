"""The APPO loss: V-trace targets, PPO's clipped objectives."""

from collections.abc import Callable, Mapping

from oni_jax.config import LearnerConfig, RewardConfig
from oni_jax.types import Array, PyTree, Trajectory

LossFn = Callable[[PyTree, Trajectory, Array], tuple[Array, Mapping[str, Array]]]


def make_loss_fn(policy_apply: Callable, learner: LearnerConfig, reward: RewardConfig) -> LossFn:
    """loss_fn(params, trajectory, intrinsic_rewards [T, B]) -> (loss, metrics of scalars); pure, to be jitted.

    policy_apply is `ActorCritic.apply`.
    """
    raise NotImplementedError
