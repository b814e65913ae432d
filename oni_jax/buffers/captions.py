"""What the games have said so far."""

from collections.abc import Mapping

import numpy as np


class CaptionTable:
    """id -> bytes of every caption seen. Written by the inference thread, read by the learner's."""

    def __init__(self) -> None:
        self._captions: dict[int, bytes] = {0: b""}

    def __len__(self) -> int:
        return len(self._captions) - 1

    def add(self, ids: np.ndarray, captions: np.ndarray) -> None:
        """ids [n] int64, captions [n, M] uint8, zero padded."""
        for caption_id, caption in zip(ids.tolist(), captions, strict=True):
            self._captions[caption_id] = caption.tobytes().replace(b"\0", b"")

    def __getitem__(self, caption_id: int) -> bytes:
        return self._captions[caption_id]

    def save(self) -> dict[str, np.ndarray]:
        return {
            "caption_ids": np.array(list(self._captions), np.int64),
            "captions": np.array(list(self._captions.values())),
        }

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self._captions.update(zip(saved["caption_ids"].tolist(), saved["captions"].tolist(), strict=True))
