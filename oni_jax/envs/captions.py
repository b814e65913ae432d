"""Captions: a text's number, and how often it was seen in an episode."""

import hashlib
from collections.abc import Mapping

import numpy as np

from oni_jax.envs.base import StepOutput

MAX_KNOWN = 200_000  # captions a tracker remembers; beyond it starts anew, and sends what it meets again


def caption_id(message: bytes) -> int:
    """A number in [1, 2^63) that is the same for this text in every process and run; 0 means "no captions"."""
    digest = hashlib.blake2b(message.rstrip(b"\0"), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 1) or 1


class CaptionTracker:
    """Numbers and counts the captions of N environments, and hands on each text that it meets for the first time.

    Args:
      num_envs: N.
      caption: the observation that holds the text, [M] uint8; None: there is nothing to do.
      max_known: captions remembered.
    """

    def __init__(self, num_envs: int, caption: str | None, max_known: int = MAX_KNOWN):
        self._caption = caption
        self._max_known = max_known
        self._ids: dict[bytes, int] = {}
        self._counts: list[dict[int, int]] = [{} for _ in range(num_envs)]  # of the running episodes

    def update(self, out: StepOutput, new_ids: np.ndarray, new_messages: np.ndarray) -> int:
        """Fills the caption fields of `out` after a reset or a step.

        Args:
          out: of the environments, in the order of earlier calls.
          new_ids: [C] int64, of the caller's; C >= 2 N, the most a step can bring.
          new_messages: [C, M] uint8, of the caller's, zero padded.

        Returns:
          How many captions were appended to both.
        """
        if self._caption is None:
            return 0
        if len(new_ids) < 2 * len(self._counts):
            raise ValueError(f"{len(self._counts)} environments need room for twice as many captions")
        if len(self._ids) > self._max_known:
            self._ids.clear()
        records, finals = out.records, out.finals
        new: list[bytes] = []

        ended = records["terminated"] | records["truncated"]
        ended_rows = ended.nonzero()[0]
        outcomes = [
            (i, *self._count(i, text, new)) for i, text in zip(ended_rows.tolist(), self._texts(finals[ended_rows]))
        ]
        for i in records["is_first"].nonzero()[0].tolist():
            self._counts[i].clear()
        seen = [self._count(i, text, new) for i, text in enumerate(self._texts(records))]
        ids, counts = zip(*seen)

        records["caption_id"] = records["outcome_caption_id"] = np.array(ids, np.int64)
        records["caption_count"] = records["outcome_caption_count"] = np.array(counts, np.float32)
        for i, number, count in outcomes:
            for record in (finals[i], records[i]):
                record["outcome_caption_id"], record["outcome_caption_count"] = number, count
            finals[i]["caption_id"], finals[i]["caption_count"] = number, count
        for row, text in enumerate(new):
            new_ids[row] = self._ids[text]
            new_messages[row] = 0
            new_messages[row, : len(text)] = np.frombuffer(text, np.uint8)
        return len(new)

    def save(self) -> dict[str, np.ndarray]:
        """The counts of the running episodes; the texts are handed on anew after `restore`."""
        rows = [(i, number, count) for i, counts in enumerate(self._counts) for number, count in counts.items()]
        return {"caption_counts": np.array(rows, np.int64).reshape(-1, 3)}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """The inverse of `save`, before the first `update`."""
        for i, number, count in saved["caption_counts"].tolist():
            self._counts[i][number] = count

    def _texts(self, records: np.ndarray) -> list[bytes]:
        """The captions of records [n], without the zeros behind them."""
        padded = np.ascontiguousarray(records[self._caption])
        return padded.view(f"S{padded.shape[1]}").ravel().tolist()

    def _count(self, i: int, text: bytes, new: list[bytes]) -> tuple[int, int]:
        """Counts a text in environment i's episode: (its number, its count)."""
        number = self._ids.get(text)
        if number is None:
            number = self._ids[text] = caption_id(text)
            new.append(text)
        counts = self._counts[i]
        counts[number] = count = counts.get(number, 0) + 1
        return number, count
