"""The captions of a batch on the host: numbered, split, and put side by side."""

from collections.abc import Sequence

import numpy as np

from oni_jax.types import CaptionBatch, StepCaptions

NO_CAPTIONS = CaptionBatch((), np.zeros((0, 0), np.int32))  # where nobody reads them


def number_in_order(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unique ids of [T, B] in order of first appearance, and the inverse index [T, B] int32."""
    distinct, first, index = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[index].reshape(ids.shape).astype(np.int32)


def split_captions(captions: StepCaptions, num_shards: int) -> list[StepCaptions]:
    """Equal shards of the B trajectories, each with its own messages and observations."""
    return list(map(StepCaptions, *(_split(batch, num_shards) for batch in captions)))


def _split(captions: CaptionBatch, num_shards: int) -> list[CaptionBatch]:
    shards = [_renumber(captions.messages, index) for index in np.split(captions.index, num_shards, axis=1)]
    split = {name: np.split(x, num_shards, axis=1) for name, x in captions.observations.items()}
    return [shard._replace(observations={name: x[i] for name, x in split.items()}) for i, shard in enumerate(shards)]


def both_ends(captions: StepCaptions) -> CaptionBatch:
    """The own captions [T, B], and behind them in time the caused ones: [2T, B]."""
    own, caused = (batch._replace(index=batch.index.T, observations={}) for batch in captions)
    joined = merge_captions([own, caused])
    observations = {
        name: np.concatenate([x, captions.caused.observations[name]]) for name, x in captions.own.observations.items()
    }
    return CaptionBatch(joined.messages, np.ascontiguousarray(joined.index.T), observations)


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
