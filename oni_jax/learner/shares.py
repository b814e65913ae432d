"""What each device computes of its own share of a batch: the policy, and the rewards before their statistics.

Everything else of an update is written for the whole batch, and stays so: XLA sums over the devices what is a mean or
a deviation of all steps. The networks are not left to it, since they merge the steps of all games, [T, B, ...] to
[T * B, ...]: no sharding of the result is one of B, and every device would compute everything.
"""

import copy
from collections.abc import Callable, Mapping

import jax
import numpy as np

from oni_jax.learner.update import Batch
from oni_jax.ops.captions import split_captions
from oni_jax.parallel import FIRST, SECOND, Replicas
from oni_jax.rewards.base import Reward
from oni_jax.types import Array, PyTree, Trajectory
from oni_jax.worlds.base import Collected

_TRAJECTORY = Trajectory(**{**dict.fromkeys(Trajectory._fields, SECOND), "initial_core_state": FIRST})  # type: ignore


def split_policy(apply: Callable, replicas: Replicas) -> Callable:
    """`ActorCritic.apply`, of which each device computes its share."""
    return replicas.split(apply, (SECOND, FIRST, SECOND), (SECOND, FIRST))


def split_reward(reward: Reward, replicas: Replicas) -> Reward:
    """The scoring half of `reward`, whose raw rewards each device computes of its share.

    The features have an axis more in front, [L, ...]: one entry a share, as `pack_shares` makes them.
    """
    if len(replicas) == 1:
        return reward

    def raw_rewards(state: PyTree, trajectory: Trajectory, features: Mapping[str, Array]) -> Array:
        return reward.raw_rewards(state, trajectory, jax.tree.map(lambda x: x[0], features))

    split = copy.copy(reward)
    split.raw_rewards = replicas.split(raw_rewards, (_TRAJECTORY, FIRST), SECOND)
    return split


def pack_shares(collected: Collected, payload_split: PyTree, reward: Reward, replicas: Replicas) -> Batch:
    """Looks up what the reward needs of this process's part of a batch, and puts that on the devices."""
    captions = collected.captions
    if len(replicas) == 1:
        return replicas.place(Batch(collected.payload, captions.index, dict(reward.prepare(captions))))
    shares = split_captions(captions, replicas.num_local)
    features = jax.tree.map(lambda *x: np.stack(x), *[dict(reward.prepare(share)) for share in shares])
    index = np.concatenate([share.index for share in shares], axis=1)
    return replicas.place(Batch(collected.payload, index, features), Batch(payload_split, SECOND, FIRST))  # type: ignore
