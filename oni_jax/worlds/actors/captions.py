"""Texts of the environments seen so far."""

from collections.abc import Iterable, Mapping

import numpy as np


class CaptionTable:
    """Maps ids to all texts seen. Written by the inference thread, read by the learner's."""

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {0: b""}

    def __len__(self) -> int:
        return len(self._texts) - 1

    def add(self, texts: Iterable[tuple[int, bytes]]) -> None:
        self._texts.update(texts)

    def __getitem__(self, text_id: int) -> bytes:
        return self._texts[text_id]

    def save(self) -> dict[str, np.ndarray]:
        texts = list(self._texts.values())
        return {
            "text_numbers": np.array(list(self._texts), np.int64),
            "text_lengths": np.array(list(map(len, texts)), np.int64),
            "text_bytes": np.frombuffer(b"".join(texts), np.uint8),
        }

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        joined, ends = saved["text_bytes"].tobytes(), np.cumsum(saved["text_lengths"]).tolist()
        texts = [joined[end - length : end] for end, length in zip(ends, saved["text_lengths"].tolist())]
        self.add(zip(saved["text_numbers"].tolist(), texts, strict=True))
