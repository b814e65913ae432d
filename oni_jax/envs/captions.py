"""Texts of environments: a text's number, and how often a caption was seen in an episode."""

import hashlib
from collections.abc import Mapping

import numpy as np

from oni_jax.envs.base import StepOutput
from oni_jax.types import EnvSpec

MAX_KNOWN = 200_000  # texts a tracker remembers; beyond it starts anew, and sends what it meets again

NewTexts = list[tuple[int, bytes]]


def caption_id(message: bytes) -> int:
    """A number in [1, 2^63) that is the same for this text in every process and run; 0 means "no captions"."""
    digest = hashlib.blake2b(message.rstrip(b"\0"), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 1) or 1


class CaptionTracker:
    """Numbers the texts of N environments, counts their captions, and hands on each text met for the first time.

    Args:
      spec: of the environments.
      num_envs: N.
      max_known: texts remembered.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, max_known: int = MAX_KNOWN):
        self._has_captions, self._has_events = spec.has_captions, spec.has_events
        self._max_known = max_known
        self._ids: dict[bytes, int] = {}
        self._counts: list[dict[int, int]] = [{} for _ in range(num_envs)]  # of the running episodes

    def update(self, out: StepOutput, numbers: np.ndarray) -> NewTexts:
        """Fills in the counts of `out`, and `numbers`, after a reset or a step.

        Args:
          out: of the environments, in the order of earlier calls.
          numbers: [N] TEXT_DTYPE, of the caller's.

        Returns:
          The texts that are met for the first time, with their numbers.
        """
        if len(self._ids) > self._max_known:
            self._ids.clear()
        new: NewTexts = []
        if self._has_captions:
            self._number_captions(out, numbers, new)
        if self._has_events:
            numbers["event"] = [self._number(text, new) for text in out.texts.events]
        return new

    def _number_captions(self, out: StepOutput, numbers: np.ndarray, new: NewTexts) -> None:
        records, finals = out.records, out.finals
        ended = (records["terminated"] | records["truncated"]).nonzero()[0].tolist()
        outcomes = [(i, *self._count(i, out.texts.final_captions[i], new)) for i in ended]
        for i in records["is_first"].nonzero()[0].tolist():
            self._counts[i].clear()
        ids, counts = zip(*[self._count(i, text, new) for i, text in enumerate(out.texts.captions)])
        numbers["caption"] = numbers["outcome_caption"] = np.array(ids, np.int64)
        records["caption_count"] = records["outcome_caption_count"] = np.array(counts, np.float32)
        for i, number, count in outcomes:
            numbers[i]["outcome_caption"] = number
            records[i]["outcome_caption_count"] = count
            finals[i]["caption_count"] = finals[i]["outcome_caption_count"] = count

    def save(self) -> dict[str, np.ndarray]:
        """The counts of the running episodes; the texts are handed on anew after `restore`."""
        rows = [(i, number, count) for i, counts in enumerate(self._counts) for number, count in counts.items()]
        return {"caption_counts": np.array(rows, np.int64).reshape(-1, 3)}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """The inverse of `save`, before the first `update`."""
        for i, number, count in saved["caption_counts"].tolist():
            self._counts[i][number] = count

    def _number(self, text: bytes, new: NewTexts) -> int:
        number = self._ids.get(text)
        if number is None:
            clean = text.replace(b"\0", b"")
            number = self._ids[text] = caption_id(clean)
            new.append((number, clean))
        return number

    def _count(self, i: int, text: bytes, new: NewTexts) -> tuple[int, int]:
        """Counts a caption in environment i's episode: (its number, its count)."""
        number = self._number(text, new)
        counts = self._counts[i]
        counts[number] = count = counts.get(number, 0) + 1
        return number, count
