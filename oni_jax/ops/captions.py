"""Captions of a batch on the host: indexed, split and merged."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from oni_jax.types import CaptionBatch, StepCaptions

NO_CAPTIONS = CaptionBatch((), np.zeros((0, 0), np.int32))  # captions of an end that is not read


class LazyRows(Mapping[str, np.ndarray]):
    """Observations at a batch's steps, each made when it is read first: most are read on the devices alone.

    Args:
        names: names of the observations.
        make: returns those of a name.
    """

    def __init__(self, names: Collection[str], make: Callable[[str], np.ndarray]):
        self._names, self._make = names, make
        self._made: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def unique_in_order(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unique ids of [T, B] in order of first appearance, and the inverse index [T, B] int32."""
    unique, first, index = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return unique[order], rank[index].reshape(ids.shape).astype(np.int32)


def a_step_of_each(index: np.ndarray, count: int) -> np.ndarray:
    """Returns a step of each of `count` captions, as indices [count] into the flattened steps of `index` [T, B]."""
    steps = np.empty(count, np.int64)
    steps[index.ravel()] = np.arange(index.size)
    return steps


def split_captions(captions: StepCaptions, num_shards: int) -> list[StepCaptions]:
    """Splits the B trajectories into equal shards, each with its captions and observations."""
    return list(map(StepCaptions, *(_split(batch, num_shards) for batch in captions)))


def _split(captions: CaptionBatch, num_shards: int) -> list[CaptionBatch]:
    shards = [_renumber(captions.captions, index) for index in np.split(captions.index, num_shards, axis=1)]

    def rows(i: int) -> LazyRows:
        return LazyRows(
            captions.observations, lambda name: np.split(captions.observations[name], num_shards, axis=1)[i]
        )

    return [shard._replace(observations=rows(i)) for i, shard in enumerate(shards)]


def both_ends(captions: StepCaptions) -> CaptionBatch:
    """Concatenates the captions before and after the steps in time: [2T, B]."""
    captions_before, caused = (batch._replace(index=batch.index.T, observations={}) for batch in captions)
    joined = merge_captions([captions_before, caused])
    before, after = captions.before.observations, captions.caused.observations
    observations = LazyRows(before, lambda name: np.concatenate([before[name], after[name]]))
    return CaptionBatch(joined.captions, np.ascontiguousarray(joined.index.T), observations)


def merge_captions(parts: Sequence[CaptionBatch]) -> CaptionBatch:
    """Merges captions of several batches along B, deduplicated."""
    captions = [caption for part in parts for caption in part.captions]
    indices = {caption: i for i, caption in enumerate(captions)}  # one for each unique caption
    offsets = np.cumsum([0, *(len(part.captions) for part in parts)])
    index = np.concatenate([part.index + offset for part, offset in zip(parts, offsets)], axis=1)
    names = parts[0].observations
    observations = {name: np.concatenate([part.observations[name] for part in parts], axis=1) for name in names}
    merged = _renumber(captions, np.array([indices[caption] for caption in captions])[index])
    return merged._replace(observations=observations)


def only_at(captions: CaptionBatch, chosen: np.ndarray) -> CaptionBatch:
    """Returns the captions of the chosen steps [T, B] bool; the empty one stands at the others."""
    index = np.where(chosen, captions.index, len(captions.captions))
    return _renumber([*captions.captions, b""], index)._replace(observations=captions.observations)


def _renumber(captions: Sequence[bytes], index: np.ndarray) -> CaptionBatch:
    """Drops the captions that the index [T, B] does not use."""
    unique, index = unique_in_order(index)
    return CaptionBatch([captions[i] for i in unique.tolist()], index)


def as_captions(padded: np.ndarray) -> list[bytes]:
    """Converts [..., M] uint8, zero padded, to captions."""
    rows = np.ascontiguousarray(padded).view(f"S{padded.shape[-1]}").ravel()
    return [row.replace(b"\0", b"") for row in rows.tolist()]
