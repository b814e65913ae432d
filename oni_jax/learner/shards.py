"""Data parallelism within an update: each device computes the policy and the rewards on its shard of the batch.

The rest of an update is written for the whole batch: XLA inserts the all-reduces of means and deviations of all steps.
The networks are sharded by hand, since they merge the axes [T, B, ...] to [T * B, ...]: no sharding of the result is
one along B, and XLA would compute everything on every device.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from oni_jax.learner.descent import Examples
from oni_jax.learner.update import Batch, Score, changed_leaves, with_changes
from oni_jax.ops.captions import split_captions
from oni_jax.parallel import AXIS_0, AXIS_1, AXIS_2, REPLICATED, TRAJECTORY, Replicas
from oni_jax.rewards.terms import Features, RewardSum
from oni_jax.types import Array, PyTree, RewardOutput, Trajectory
from oni_jax.worlds.base import Collected


def shard_policy(apply: Callable, replicas: Replicas) -> Callable:
    """Returns `ActorCritic.apply`, computed by each device on its shard."""
    return replicas.sharded(apply, (AXIS_1, AXIS_0, AXIS_1), (AXIS_1, AXIS_0))


def shard_score(rewards: RewardSum, replicas: Replicas) -> Score:
    """Returns `rewards.score`, computed by each device on its shard of the batch.

    The features have one more leading axis, [L, ...]: one entry a shard, as `pack_shards` makes them. For statistics
    of the whole batch a reward calls `parallel.all_gather`: its new state must be replicated.
    """
    if len(replicas) == 1:
        return rewards.score
    changed: list[int] = []  # indices of the state's leaves that scoring replaces

    def score_shard(state: PyTree, trajectory: Trajectory, features: Features, key: Array) -> RewardOutput:
        output = rewards.score(state, trajectory, jax.tree.map(lambda x: x[0], features), key)
        changed[:] = changed_leaves(output.state, state)
        return output

    split = replicas.sharded(score_shard, (TRAJECTORY, AXIS_0, REPLICATED), RewardOutput(AXIS_2, REPLICATED))

    def score(state: PyTree, trajectory: Trajectory, features: Features, key: Array) -> RewardOutput:
        scored, new = split(state, trajectory, features, key)
        leaves = jax.tree.leaves(new)
        return RewardOutput(scored, with_changes(state, {i: leaves[i] for i in changed}))

    return score


def shard_take(replicas: Replicas) -> Callable[[Array, Examples], Examples]:
    """Returns take(indices, examples): each device takes the trajectories with these indices from its shard."""

    def take(indices: Array, examples: Examples) -> Examples:
        def along(axis: int, tree: PyTree) -> PyTree:
            return jax.tree.map(lambda x: jnp.take(x, indices, axis), tree)

        trajectory, intrinsic_rewards, targets = examples
        taken = along(1, trajectory._replace(initial_core_state=()))
        taken = taken._replace(initial_core_state=along(0, trajectory.initial_core_state))
        return Examples(taken, along(2, intrinsic_rewards), along(1, targets))

    specs = Examples(TRAJECTORY, AXIS_2, AXIS_1)  # type: ignore
    return replicas.sharded(take, (specs,), specs)


def pack_shards(collected: Collected, payload_sharding: PyTree, rewards: RewardSum, replicas: Replicas) -> Batch:
    """Looks up what the rewards need for this process's part of a batch, and puts both on the devices."""
    captions = rewards.read(collected.captions)
    if len(replicas) == 1:
        return replicas.put(Batch(collected.payload, rewards.prepare(captions)))
    features = rewards.prepare_shards(split_captions(captions, replicas.num_local))
    return replicas.put(Batch(collected.payload, features), Batch(payload_sharding, AXIS_0))  # type: ignore
