"""How often a run met each message, for those who look at its reward."""

import os
from collections import Counter
from collections.abc import Mapping

import numpy as np

from oni_jax.config import UserError
from oni_jax.files import write_atomically
from oni_jax.npz import join_texts, split_texts, to_npz
from oni_jax.types import CaptionBatch

FILE_NAME = "messages.npz"
CAPACITY = 50_000  # messages; some 10 MB
MAX_FILE_BYTES = 100_000_000  # unpacked; a larger one is none of ours


class MessageCounts:
    """Counts of at most `capacity` messages. When more come, the rarer half is forgotten: games say numbers too."""

    def __init__(self, capacity: int = CAPACITY):
        self._capacity = capacity
        self._counts: Counter[bytes] = Counter()

    def add(self, captions: CaptionBatch) -> None:
        """Counts a batch's messages, once a step."""
        numbers = np.bincount(captions.index.ravel(), minlength=len(captions.messages))
        for message, number in zip(captions.messages, numbers.tolist(), strict=True):
            self._counts[message] += number
        if len(self._counts) > self._capacity:
            self._counts = Counter(dict(self._counts.most_common(self._capacity // 2)))

    def counts(self) -> Mapping[bytes, int]:
        """Message -> steps at which the run met it."""
        return self._counts

    def save(self, folder: str) -> None:
        """Writes <folder>/messages.npz, whole or not at all. What fails is told in one line, and ends no run."""
        path = os.path.join(folder, FILE_NAME)
        often = self._counts.most_common()
        ends = np.cumsum([len(message) + 1 for message, _ in often])
        often = often[: int(np.searchsorted(ends, MAX_FILE_BYTES // 2))]  # in a file that is read again
        counts = np.array([count for _, count in often], np.int64)
        try:
            write_atomically(
                path, to_npz({"messages": join_texts(message for message, _ in often), "counts": counts}).data
            )
        except OSError as error:
            print(f"warning: {path} can't be written ({error.strerror})", flush=True)

    def restore(self, folder: str) -> None:
        """The inverse of `save`; nothing where no file is. Raises UserError when it is damaged."""
        path = os.path.join(folder, FILE_NAME)
        if not os.path.exists(path):
            return
        try:
            with np.load(path, allow_pickle=False) as saved:
                if sum(entry.file_size for entry in saved.zip.infolist()) > MAX_FILE_BYTES:
                    raise ValueError("too large")
                messages, counts = split_texts(saved["messages"]), saved["counts"].tolist()
            self._counts = Counter(dict(zip(messages, counts, strict=bool(counts))))
        except Exception:  # NumPy and zip raise many types for damaged files
            raise UserError(f"{path} can't be read; move it away: the counts of messages then begin anew") from None
