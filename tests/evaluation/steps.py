"""Steps of an episode as environments write them, made up."""

from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.envs.base import TEXT_DTYPE, record_dtype
from oni_jax.envs.captions import caption_id
from oni_jax.evaluation.intrinsic import NUM_AT_ONCE, NewestSteps, Scorer
from oni_jax.evaluation.playing import Step
from oni_jax.worlds.actors.captions import CaptionTable


def running_counts(captions: Sequence[bytes]) -> list[int]:
    """Each caption's number of occurrences so far, itself included."""
    return [captions[: i + 1].count(caption) for i, caption in enumerate(captions)]


def scored(
    scorer: Scorer,
    captions: Sequence[bytes],
    observations: Mapping[str, np.ndarray] | None = None,
    counts: Sequence[int] = (),
    num_at_once: int = NUM_AT_ONCE,
) -> np.ndarray:
    """The rewards [K, L] of the steps between L + 1 captions, with observations [L + 1, ...] beside them."""
    newest, table, parts = NewestSteps(scorer.spec, num_at_once), CaptionTable(), []
    table.add((caption_id(caption), caption) for caption in captions)
    for i, (caption, count) in enumerate(zip(captions, counts or running_counts(captions), strict=True)):
        records, texts = np.zeros(1, record_dtype(scorer.spec)), np.full((1, 2), caption_id(caption), np.int64)
        records["is_first"], records["caption_count"], records["outcome_caption_count"] = i == 0, count, count
        for name, rows in (observations or {}).items():
            records[name] = rows[i]
        numbers = np.zeros(1, np.int32)
        seen = records, records, texts.view(TEXT_DTYPE)[:, 0], table
        step = Step(0, *seen, numbers, numbers, numbers, numbers + i, ())
        if newest.add(step) or i == len(captions) - 1:
            steps, num = newest.take()
            parts.append(scorer.score(steps)[:, :num, 0])
    assert scorer.problem == ""
    return np.concatenate(parts, axis=1)
