"""What each device computes of its own shard of a batch: the policy, and the rewards.

Everything else of an update is written for the whole batch, and stays so: XLA sums over the devices what is a mean or
a deviation of all steps. The networks are not left to it, since they merge the steps of all games, [T, B, ...] to
[T * B, ...]: no sharding of the result is one of B, and every device would compute everything.
"""

from collections.abc import Callable

import jax
import numpy as np

from oni_jax.learner.update import Batch, Score, changed_leaves, with_changes
from oni_jax.ops.captions import split_captions
from oni_jax.parallel import AXIS_0, AXIS_1, AXIS_2, REPLICATED, Replicas
from oni_jax.rewards.terms import Features, RewardSum
from oni_jax.types import Array, PyTree, RewardOutput, Trajectory
from oni_jax.worlds.base import Collected

_TRAJECTORY = Trajectory(**{**dict.fromkeys(Trajectory._fields, AXIS_1), "initial_core_state": AXIS_0})  # type: ignore


def shard_policy(apply: Callable, replicas: Replicas) -> Callable:
    """`ActorCritic.apply`, of which each device computes its share."""
    return replicas.shard_map(apply, (AXIS_1, AXIS_0, AXIS_1), (AXIS_1, AXIS_0))


def shard_score(rewards: RewardSum, replicas: Replicas) -> Score:
    """`rewards.score`, all of which runs on each device, with its own shard of the batch.

    The features have an axis more in front, [L, ...]: one entry a shard, as `pack_shards` makes them. What a reward
    computes of the whole batch it asks `parallel.gathered` for: its new state has to be the same on every device.
    """
    if len(replicas) == 1:
        return rewards.score
    changed: list[int] = []  # leaves of the state

    def score_shard(state: PyTree, trajectory: Trajectory, features: Features, key: Array) -> RewardOutput:
        output = rewards.score(state, trajectory, jax.tree.map(lambda x: x[0], features), key)
        changed[:] = changed_leaves(output.state, state)
        return output

    split = replicas.shard_map(score_shard, (_TRAJECTORY, AXIS_0, REPLICATED), RewardOutput(AXIS_2, REPLICATED))

    def score(state: PyTree, trajectory: Trajectory, features: Features, key: Array) -> RewardOutput:
        scored, new = split(state, trajectory, features, key)
        leaves = jax.tree.leaves(new)
        return RewardOutput(scored, with_changes(state, {i: leaves[i] for i in changed}))

    return score


def pack_shards(collected: Collected, payload_sharding: PyTree, rewards: RewardSum, replicas: Replicas) -> Batch:
    """Looks up what the rewards need of this process's part of a batch, and puts that on the devices."""
    if len(replicas) == 1:
        return replicas.put(Batch(collected.payload, rewards.prepare(collected.captions)))
    shares = split_captions(collected.captions, replicas.num_local)
    features = jax.tree.map(lambda *x: np.stack(x), *map(rewards.prepare, shares))
    return replicas.put(Batch(collected.payload, features), Batch(payload_sharding, AXIS_0))  # type: ignore
