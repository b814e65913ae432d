"""Texts of the environments seen so far."""

import contextlib
import itertools
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from oni_jax.host.reporting import report

MAX_HELD = 50_000  # texts in memory: some 15 MB


class CaptionTable:
    """Maps ids to all texts seen. Written by the inference threads, read by the learner's.

    The texts that were used last are in memory; older ones lie in an unnamed temporary file of SQLite.

    Args:
        max_held: texts in memory, at most.
    """

    def __init__(self, max_held: int = MAX_HELD) -> None:
        self._held: dict[int, bytes] = {}  # ordered by use, the last at the end
        self._max_held = max_held
        self._stored: sqlite3.Connection | None = None
        self._count = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._count

    def add(self, texts: Iterable[tuple[int, bytes]]) -> None:
        with self._lock:
            for text_id, text in texts:
                if text_id and self._find(text_id) is None:
                    self._count += 1
                    self._held[text_id] = text
                    self._bound()

    def __getitem__(self, text_id: int) -> bytes:
        if not text_id:
            return b""
        with self._lock:
            text = self._find(text_id)
            if text is None:
                raise KeyError(text_id)
            self._held.pop(text_id, None)
            self._held[text_id] = text
            self._bound()
            return text

    def _find(self, text_id: int) -> bytes | None:
        text = self._held.get(text_id)
        if text is None and self._stored:
            row = self._stored.execute("SELECT text FROM texts WHERE id = ?", (text_id,)).fetchone()
            text = row[0] if row else None
        return text

    def _bound(self) -> None:
        """Moves half of the texts out of memory where there are too many; keeps all where the disk is full."""
        if len(self._held) <= self._max_held:
            return
        old = list(itertools.islice(self._held.items(), len(self._held) // 2))
        try:
            self._stored = self._stored or _opened()
            with self._stored:
                self._stored.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", old)
        except sqlite3.Error as error:
            report(f"warning: captions seen can't be moved to a temporary file ({error}); they are kept in memory")
            self._max_held *= 2
            return
        for text_id, _ in old:
            del self._held[text_id]

    def _all(self) -> Iterator[tuple[int, bytes]]:
        yield 0, b""
        if self._stored:
            stored = self._stored.execute("SELECT id, text FROM texts")
            yield from (row for row in stored if row[0] not in self._held)
        yield from self._held.items()

    def save(self) -> dict[str, np.ndarray]:
        with self._lock:
            numbers, texts = zip(*self._all(), strict=True)
        return {
            "text_numbers": np.array(numbers, np.int64),
            "text_lengths": np.array(list(map(len, texts)), np.int64),
            "text_bytes": np.frombuffer(b"".join(texts), np.uint8),
        }

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        joined, ends = saved["text_bytes"].tobytes(), np.cumsum(saved["text_lengths"]).tolist()
        texts = (joined[end - length : end] for end, length in zip(ends, saved["text_lengths"].tolist()))
        self.add(zip(saved["text_numbers"].tolist(), texts, strict=True))


def _opened() -> sqlite3.Connection:
    stored = sqlite3.connect("", check_same_thread=False)  # a file that ends with it
    with contextlib.closing(stored.cursor()) as cursor:
        cursor.execute("PRAGMA journal_mode = OFF")
        cursor.execute("CREATE TABLE texts (id INTEGER PRIMARY KEY, text BLOB NOT NULL)")
    return stored
