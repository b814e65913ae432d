"""Pairs of observations: drawn from batches and asked about once; each draw is a row of the data set."""

import collections
import itertools
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.annotation.queries.choices import decode_label
from oni_jax.host.npz import join_texts, split_texts
from oni_jax.rewards.oni.messages import MESSAGE_SIZE, captions_of, message_array
from oni_jax.types import TIE, UNKNOWN, Annotation, CaptionBatch, Item

NUM_PAIRS_PER_BATCH = 10
DRAWS_PER_PAIR = 10

Rows = dict[str, np.ndarray]


class PairDraws:
    """Draws pairs, and turns them into labelled rows once their label is known.

    A row: `message` [2, 256] uint8, `id` [2] int32 (equal where the messages are), `label`, and the observations
    `names`, [2, ...].

    Args:
        names: observations beside the message.
        subsample: stride of the observations of a batch that may be drawn.
        distinct: draws only from the first observation of each unique caption.
        max_waiting: limit of pairs that wait for a label, with DRAWS_PER_PAIR draws each on average.
        seed: seed of the draws.
    """

    def __init__(self, names: Sequence[str], subsample: int, distinct: bool, max_waiting: int, seed: int):
        self._names, self._subsample, self._distinct = names, subsample, distinct
        self._max_waiting, self._seed = max_waiting, seed
        self._labels: dict[Item, int] = {}  # UNKNOWN: the LLM gave none
        self._waiting: dict[Item, list[Rows]] = {}  # an unlabelled row for each draw
        self._ids = collections.defaultdict[bytes, int](itertools.count().__next__)
        self._num_batches = 0

    def waiting(self) -> list[Item]:
        """Returns the pairs that wait for a label, the newest last."""
        return list(self._waiting)

    def draw(self, captions: CaptionBatch) -> list[Rows]:
        """Draws pairs from a batch, and returns the rows of those whose label is known."""
        rng = np.random.default_rng([self._seed, self._num_batches])
        self._num_batches += 1
        kept = np.arange(0, captions.index.size, self._subsample)
        if self._distinct:
            _, first = np.unique(captions.index.ravel()[kept], return_index=True)
            kept = kept[np.sort(first)]
        num_draws = sum(map(len, self._waiting.values()))
        if len(self._waiting) >= self._max_waiting or num_draws >= DRAWS_PER_PAIR * self._max_waiting or len(kept) < 2:
            return []
        pairs = [rng.choice(kept, 2, replace=False) for _ in range(NUM_PAIRS_PER_BATCH)]
        return [row for indices in pairs for row in self._add(indices, captions)]

    def _add(self, indices: np.ndarray, captions: CaptionBatch) -> list[Rows]:
        pair = [captions.captions[number] for number in captions.index.ravel()[indices]]
        if not _in_order(*pair):  # each pair is asked about in one order
            pair, indices = pair[::-1], indices[::-1]
        steps = np.unravel_index(indices, captions.index.shape)
        row = {name: captions.observations[name][steps] for name in self._names}
        row["message"] = message_array(pair)
        item = tuple(pair)
        label = TIE if pair[0] == pair[1] else self._labels.get(item)
        if label is None:
            self._waiting.setdefault(item, []).append(row)
        return [] if label in (None, UNKNOWN) else [self._labelled(item, row, label)]

    def ingest(self, annotations: Sequence[Annotation]) -> list[Rows]:
        """Takes in labels, and returns the rows that waited for them. Pairs of unknown label are dropped."""
        rows = []
        for item, answer, _ in annotations:
            label = self._labels[item] = UNKNOWN if answer is None else decode_label(answer).label
            draws = self._waiting.pop(item, [])
            if label != UNKNOWN:
                rows += [self._labelled(item, row, label) for row in draws]
        return rows

    def _labelled(self, item: Item, row: Rows, label: int) -> Rows:
        ids = [self._ids[caption[:MESSAGE_SIZE]] for caption in item]  # truncated as in the row
        return {**row, "id": np.array(ids, np.int32), "label": np.int32(label)}  # type: ignore[dict-item]

    def save(self) -> dict[str, np.ndarray]:
        """Returns the rows that wait for a label, and the number of batches drawn from."""
        draws = [(item, row) for item, rows in self._waiting.items() for row in rows]
        saved = {"num_batches": np.array([self._num_batches])}
        if draws:
            captions = [caption for item, _ in draws for caption in item]  # whole: a row truncates them
            saved["items_waiting"] = join_texts(captions)
            saved |= {f"waiting_{name}": x for name, x in stack([row for _, row in draws]).items()}
        return saved

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restores what `save` returned, and the captions' ids from the rows of the data set, which are `saved` too."""
        self._num_batches = int(saved["num_batches"][0])
        for messages, ids in zip(saved.get("rows_message", ()), saved.get("rows_id", ())):
            self._ids.update(zip(captions_of(messages), ids.tolist()))
        # Larger ids are free: only rows that were replaced since can have had them.
        self._ids.default_factory = itertools.count(1 + max(self._ids.values(), default=-1)).__next__
        names = [name for name in saved if name.startswith("waiting_")]
        texts = split_texts(np.asarray(saved.get("items_waiting", ())).astype(np.uint8))
        for i in range(num_waiting := len(saved.get("waiting_message", ()))):
            row = {name.removeprefix("waiting_"): np.asarray(saved[name][i]) for name in names}
            has_items = len(texts) == 2 * num_waiting  # else an older version saved it
            item = texts[2 * i : 2 * i + 2] if has_items else captions_of(row["message"])
            self._waiting.setdefault(tuple(item), []).append(row)


def stack(rows: Sequence[Mapping[str, np.ndarray]]) -> Rows:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _in_order(first: bytes, second: bytes) -> bool:
    """Returns whether a pair is in the order in which it is asked about: by hash, so that length has no influence."""
    return (zlib.crc32(first), first) <= (zlib.crc32(second), second)
