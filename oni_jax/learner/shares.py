"""What each device computes of its own shard of a batch: the policy, and the rewards.

Everything else of an update is written for the whole batch, and stays so: XLA sums over the devices what is a mean or
a deviation of all steps. The networks are not left to it, since they merge the steps of all games, [T, B, ...] to
[T * B, ...]: no sharding of the result is one of B, and every device would compute everything.
"""

from collections.abc import Callable, Mapping

import chex
import jax
import numpy as np

from oni_jax.learner.update import Batch, Score
from oni_jax.ops.captions import split_captions
from oni_jax.parallel import FIRST, SECOND, WHOLE, Replicas
from oni_jax.rewards.base import Reward
from oni_jax.types import Array, PyTree, RewardOutput, Trajectory
from oni_jax.worlds.base import Collected

_TRAJECTORY = Trajectory(**{**dict.fromkeys(Trajectory._fields, SECOND), "initial_core_state": FIRST})  # type: ignore


def split_policy(apply: Callable, replicas: Replicas) -> Callable:
    """`ActorCritic.apply`, of which each device computes its share."""
    return replicas.split(apply, (SECOND, FIRST, SECOND), (SECOND, FIRST))


def split_score(reward: Reward, replicas: Replicas) -> Score:
    """`reward.score`, all of which runs on each device, with its own shard of the batch.

    The features have an axis more in front, [L, ...]: one entry a shard, as `pack_shares` makes them. What the reward
    computes of the whole batch it asks `parallel.gathered` for: its new state has to be the same on every device.
    """
    if len(replicas) == 1:
        return reward.score
    passed_through: list[bool] = []  # leaves of the state

    def score_shard(state: PyTree, trajectory: Trajectory, features: Mapping[str, Array]) -> RewardOutput:
        output = reward.score(state, trajectory, jax.tree.map(lambda x: x[0], features))
        chex.assert_shape(output.rewards, trajectory.rewards.shape)
        passed_through[:] = [new is old for new, old in zip(jax.tree.leaves(output.state), jax.tree.leaves(state))]
        return output

    split = replicas.split(score_shard, (_TRAJECTORY, FIRST), RewardOutput(SECOND, WHOLE))

    def score(state: PyTree, trajectory: Trajectory, features: Mapping[str, Array]) -> RewardOutput:
        rewards, new = split(state, trajectory, features)
        (new, structure), old = jax.tree.flatten(new), jax.tree.leaves(state)
        leaves = [before if same else after for same, before, after in zip(passed_through, old, new, strict=True)]
        return RewardOutput(rewards, jax.tree.unflatten(structure, leaves))

    return score


def pack_shares(collected: Collected, payload_split: PyTree, reward: Reward, replicas: Replicas) -> Batch:
    """Looks up what the reward needs of this process's part of a batch, and puts that on the devices."""
    captions = collected.captions
    if len(replicas) == 1:
        return replicas.place(Batch(collected.payload, captions.index, dict(reward.prepare(captions))))
    shares = split_captions(captions, replicas.num_local)
    features = jax.tree.map(lambda *x: np.stack(x), *[dict(reward.prepare(share)) for share in shares])
    index = np.concatenate([share.index for share in shares], axis=1)
    return replicas.place(Batch(collected.payload, index, features), Batch(payload_split, SECOND, FIRST))  # type: ignore
