"""Counts of the captions that a run met, for the inspection of its reward."""

import os
from collections import Counter
from collections.abc import Mapping

import numpy as np

from oni_jax.host.files import write_atomically
from oni_jax.host.npz import join_texts, open_npz, split_texts, to_npz
from oni_jax.host.reporting import report
from oni_jax.settings.fields import UserError
from oni_jax.types import CaptionBatch

FILE_NAME = "messages.npz"
CAPACITY = 50_000  # captions; some 10 MB
MAX_FILE_BYTES = 100_000_000  # unpacked; a larger file is rejected


class MessageCounts:
    """Counts of at most `capacity` captions; of more, the rarer are forgotten: numbers in captions make many."""

    def __init__(self, capacity: int = CAPACITY):
        self._capacity = capacity
        self._counts: Counter[bytes] = Counter()

    def add(self, captions: CaptionBatch) -> None:
        """Counts a batch's captions, once a step."""
        numbers = np.bincount(captions.index.ravel(), minlength=len(captions.captions))
        for caption, number in zip(captions.captions, numbers.tolist(), strict=True):
            self._counts[caption] += number
        if len(self._counts) > self._capacity:
            self._counts = Counter(dict(self._counts.most_common(self._capacity // 2)))

    def counts(self) -> Mapping[bytes, int]:
        """Returns caption -> number of steps at which the run met it."""
        return self._counts

    def save(self, folder: str) -> None:
        """Writes <folder>/messages.npz atomically. A failure is logged in one line, and does not end the run."""
        path = os.path.join(folder, FILE_NAME)
        common = self._counts.most_common()
        ends = np.cumsum([len(caption) + 1 for caption, _ in common])
        common = common[: int(np.searchsorted(ends, MAX_FILE_BYTES // 2))]  # a file that `restore` accepts
        counts = np.array([count for _, count in common], np.int64)
        try:
            write_atomically(
                path, to_npz({"messages": join_texts(caption for caption, _ in common), "counts": counts}).data
            )
        except OSError as error:
            report(f"warning: {path} can't be written ({error.strerror})")

    def restore(self, folder: str) -> None:
        """Restores the counts of `save`, if there is a file. Raises UserError when it is damaged."""
        path = os.path.join(folder, FILE_NAME)
        if not os.path.lexists(path):
            return
        try:
            with open_npz(path) as (saved, headers):
                if sum(header.num_bytes for header in headers.values()) > MAX_FILE_BYTES:
                    raise ValueError("too large")
                captions, counts = split_texts(saved["messages"]), saved["counts"]
            if counts.dtype.kind not in "iu" or counts.ndim != 1 or (counts < 0).any():
                raise ValueError("no counts")
            self._counts = Counter(dict(zip(captions, counts.tolist(), strict=bool(len(counts)))))
        except Exception:  # NumPy and zip raise many types for damaged files
            raise UserError(f"{path} can't be read; move it away to count captions from 0") from None
