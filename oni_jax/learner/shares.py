"""What each device computes of its own share of a batch: the policy, and the rewards before their statistics.

Everything else of an update is written for the whole batch, and stays so: XLA sums over the devices what is a mean or
a deviation of all steps. The networks are not left to it, since they merge the steps of all games, [T, B, ...] to
[T * B, ...]: no sharding of the result is one of B, and every device would compute everything.
"""

import copy
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from oni_jax.learner.batches import HostBatch, PackedBatch, number_in_order, pack
from oni_jax.parallel import FIRST, SECOND, Replicas
from oni_jax.rewards.base import Reward
from oni_jax.types import Array, CaptionBatch, PyTree, Trajectory

_TRAJECTORY = Trajectory(**{**dict.fromkeys(Trajectory._fields, SECOND), "initial_core_state": FIRST})  # type: ignore
_BATCH = PackedBatch(SECOND, SECOND, SECOND, FIRST, FIRST)  # type: ignore


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


def pack_shares(batch: HostBatch, reward: Reward, replicas: Replicas) -> PackedBatch:
    """Looks up what the reward needs of this process's part of a batch, and puts that on the devices."""
    if len(replicas) == 1:
        return replicas.place(pack(batch, reward.prepare(batch.captions)))
    shares = split_captions(batch.captions, replicas.num_local)
    features = jax.tree.map(lambda *x: np.stack(x), *[dict(reward.prepare(share)) for share in shares])
    index = np.concatenate([share.index for share in shares], axis=1)
    return replicas.place(pack(batch._replace(captions=batch.captions._replace(index=index)), features), _BATCH)


def split_captions(captions: CaptionBatch, num_shares: int) -> list[CaptionBatch]:
    """Equal shares of the B trajectories, each with its own messages; without their observations."""
    return [_renumber(captions.messages, index) for index in np.split(captions.index, num_shares, axis=1)]


def merge_captions(parts: Sequence[CaptionBatch]) -> CaptionBatch:
    """The captions of all trajectories, side by side."""
    messages = [message for part in parts for message in part.messages]
    places = {message: place for place, message in enumerate(messages)}  # each message has one
    offsets = np.cumsum([0, *(len(part.messages) for part in parts)])
    index = np.concatenate([part.index + offset for part, offset in zip(parts, offsets)], axis=1)
    names = parts[0].observations
    observations = {name: np.concatenate([part.observations[name] for part in parts], axis=1) for name in names}
    merged = _renumber(messages, np.array([places[message] for message in messages])[index])
    return merged._replace(observations=observations)


def _renumber(messages: Sequence[bytes], index: np.ndarray) -> CaptionBatch:
    """Without the messages that the index [T, B] does not name."""
    distinct, index = number_in_order(index)
    return CaptionBatch([messages[place] for place in distinct.tolist()], index)
