"""Ids of environments' texts, and episodic counts of their captions."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from oni_jax.envs.base import StepOutput
from oni_jax.types import EPISODE_GOAL, EnvSpec

MAX_KNOWN = 200_000  # texts in a tracker's table; beyond, it is cleared, and texts count as new again

_OF_GOAL = 0x9E37_79B9_7F4A  # its products with small numbers are far apart, and below 2^63

NewTexts = list[tuple[int, bytes]]


def caption_id(text: bytes) -> int:
    """Returns an id in [1, 2^63), the same for this text in every process and run; 0 stands for "no text"."""
    digest = hashlib.blake2b(text.rstrip(b"\0"), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 1) or 1


def under_goal(caption_ids: Any, goals: Any) -> Any:
    """Returns ids of captions under a goal, so that each goal has its counts; goal 0 leaves them as they are.

    Both are numbers or arrays of one shape and type.
    """
    return caption_ids ^ (goals * _OF_GOAL)


class EpisodicCounts:
    """Occurrences of captions, by their ids, in the running episodes of N environments."""

    def __init__(self, num_envs: int):
        self.of_each: list[dict[int, int]] = [{} for _ in range(num_envs)]

    def save(self) -> dict[str, np.ndarray]:
        rows = [(i, text_id, count) for i, counts in enumerate(self.of_each) for text_id, count in counts.items()]
        return {"caption_counts": np.array(rows, np.uint64).reshape(-1, 3)}

    def are_in(self, saved: Mapping[str, np.ndarray]) -> bool:
        """Returns whether `restore` can restore them."""
        return "caption_counts" in saved

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        for i, text_id, count in saved["caption_counts"].tolist():
            self.of_each[i][text_id] = count


class CaptionTracker:
    """Assigns ids to the texts of N environments, counts captions within episodes, and returns the new texts.

    Args:
      spec: of the environments.
      num_envs: N.
      max_known: size at which the table of texts is cleared.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, max_known: int = MAX_KNOWN):
        self._has_captions, self._has_goals = spec.has_captions, EPISODE_GOAL in spec.observations
        self._goals, self._masks = [0] * num_envs, [0] * num_envs  # the next steps' goals, see `under_goal`
        self._max_known = max_known
        self._ids: dict[bytes, int] = {}
        self._counts = EpisodicCounts(num_envs)

    def update(self, out: StepOutput, ids: np.ndarray) -> NewTexts:
        """Fills in the counts of `out`, and `ids`, after a reset or a step.

        Args:
          out: of the environments, in the order of earlier calls.
          ids: [N] TEXT_DTYPE, written in place.

        Returns:
          (id, text) of the new texts.
        """
        if len(self._ids) > self._max_known:
            self._ids.clear()
        new: NewTexts = []
        if self._has_captions:
            self._count_captions(out, ids, new)
        return new

    def _count_captions(self, out: StepOutput, ids: np.ndarray, new: NewTexts) -> None:
        records, finals = out.records, out.finals
        ended = (records["terminated"] | records["truncated"]).nonzero()[0].tolist()
        outcomes = [(i, *self._count(i, out.texts.final_captions[i], new)) for i in ended]
        if self._has_goals:
            outcomes += self._change_goals(records, out.texts.captions, new)
        for i in records["is_first"].nonzero()[0].tolist():
            self._counts.of_each[i].clear()
        newest, counts = zip(*[self._count(i, text, new) for i, text in enumerate(out.texts.captions)])
        ids["caption"] = ids["outcome_caption"] = np.array(newest, np.int64)
        records["caption_count"] = records["outcome_caption_count"] = np.array(counts, np.float32)
        for i, outcome, count in outcomes:
            ids[i]["outcome_caption"] = outcome
            records[i]["outcome_caption_count"] = count
            finals[i]["caption_count"] = finals[i]["outcome_caption_count"] = count

    def _change_goals(self, records: np.ndarray, captions: list[bytes], new: NewTexts) -> list[tuple[int, int, int]]:
        """Takes in the goals. Returns (i, id, count) of the outcomes where an episode goes on with another goal."""
        goals, before = records[EPISODE_GOAL].tolist(), self._goals
        if goals == before:
            return []
        changed = [i for i, goal in enumerate(goals) if goal != before[i] and not records["is_first"][i]]
        outcomes = [(i, *self._count(i, captions[i], new)) for i in changed]
        self._set_goals(goals)
        return outcomes

    def _set_goals(self, goals: list[int]) -> None:
        self._goals, self._masks = goals, [under_goal(0, goal) for goal in goals]

    def save(self) -> dict[str, np.ndarray]:
        """Returns the counts of the running episodes; after `restore` all texts count as new."""
        goals = {"caption_goals": np.array(self._goals)} if self._has_goals else {}
        return {**self._counts.save(), **goals}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restores what `save` returned, before the first `update`."""
        self._counts.restore(saved)
        if self._has_goals:
            self._set_goals(saved["caption_goals"].tolist())

    def _id(self, text: bytes, new: NewTexts) -> int:
        text_id = self._ids.get(text)
        if text_id is None:
            clean = text.replace(b"\0", b"")
            text_id = self._ids[text] = caption_id(clean)
            new.append((text_id, clean))
        return text_id

    def _count(self, i: int, text: bytes, new: NewTexts) -> tuple[int, int]:
        """Counts a caption in environment i's episode. Returns (id, count)."""
        text_id = self._id(text, new)
        counts, counted = self._counts.of_each[i], text_id ^ self._masks[i]
        counts[counted] = count = counts.get(counted, 0) + 1
        return text_id, count
