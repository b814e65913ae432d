"""A caption's reward is the worth of the LLM's answer about it, 0 while it has none."""

import math
import sys
from collections.abc import Callable, Sequence

from oni_jax.rewards.base import LookUp, newest
from oni_jax.types import Annotation, CaptionBatch, Item


class AnswerTable(LookUp):
    """A table caption -> value of its answer. The label store holds the answers, so a checkpoint holds none of it.

    Args:
        value: stored answer -> number.
    """

    def __init__(self, value: Callable[[bytes], float]):
        self._value = value
        self._values: dict[bytes, float] = {}
        self._newest: Sequence[bytes] = ()  # captions of the last batch

    def look_up(self, caption: bytes) -> float:
        return self._values.get(caption, 0.0)

    def label(self, caption: bytes) -> float:
        """Returns a caption's value; NaN: it has none."""
        return self._values.get(caption, math.nan)

    def observe_captions(self, captions: CaptionBatch) -> None:
        self._newest = captions.captions

    def queries(self, limit: int = sys.maxsize) -> Sequence[Item]:
        return newest(((x,) for x in reversed(self._newest) if x and x not in self._values), limit)

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        self._values.update({a.item[0]: self._value(a.answer) for a in annotations if a.answer is not None})
