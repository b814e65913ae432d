"""ONI-Retrieval: a caption's reward is the LLM's label of it (or its probability), 0 while it has none."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from oni_jax.annotation.queries.choices import decode_label
from oni_jax.rewards.base import LookUp, Seen, newest
from oni_jax.rewards.combine import Paid, pay
from oni_jax.rewards.oni.classification import ClassificationScorer
from oni_jax.rewards.oni.classification import make as make_classifier
from oni_jax.rewards.registry import RewardContext
from oni_jax.settings.rewards import RewardConfig
from oni_jax.types import Annotation, Array, CaptionBatch, Item, ModelState


class RetrievalScorer(LookUp):
    """A table caption -> label. The label store holds the same, so a checkpoint holds none of it."""

    def __init__(self, config: RewardConfig):
        self._soft = config.llm_reward_value == "probability"
        self._labels: dict[bytes, float] = {}
        self._helpful: set[bytes] = set()  # those whose label says so
        self._newest: Sequence[bytes] = ()  # captions of the last batch

    def look_up(self, caption: bytes) -> float:
        return self._labels.get(caption, 0.0)

    def label(self, caption: bytes) -> float:
        """Returns a caption's label; NaN: it has none."""
        return self._labels.get(caption, math.nan)

    def observe_captions(self, captions: CaptionBatch) -> None:
        self._newest = captions.captions

    def queries(self, limit: int = sys.maxsize) -> Sequence[Item]:
        return newest(((x,) for x in reversed(self._newest) if x and x not in self._labels), limit)

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        known = [(a.item[0], decode_label(a.answer)) for a in annotations if a.answer is not None]
        for caption, x in known:
            self._labels[caption] = x.probability if self._soft else float(x.label)
            (self._helpful.add if x.label else self._helpful.discard)(caption)

    def metrics(self) -> Mapping[str, Array]:
        return {"helpful_fraction": np.float32(len(self._helpful) / len(self._labels))} if self._labels else {}


class RetrievalOrModelScorer(ClassificationScorer):
    """Values a caption by its label; one that has none by a classifier, which learns from the labels."""

    def __init__(self, config: RewardConfig, *args: Any):
        super().__init__(config, *args)
        self._table = RetrievalScorer(config)

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        looked_up = super().prepare(captions)
        labels = np.full(len(looked_up["used"]), np.nan, np.float32)
        labels[: len(captions.captions)] = [self._table.label(caption) for caption in captions.captions]
        return {**looked_up, "labels": labels, "used": looked_up["used"] & np.isnan(labels)}

    def raw_values(self, state: ModelState, seen: Seen, features: Mapping[str, Array]) -> Array:
        labels = features["labels"][seen.index]
        return jnp.where(jnp.isnan(labels), super().raw_values(state, seen, features), labels)

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        super().ingest(annotations)
        self._table.ingest(annotations)


def make(context: RewardContext) -> Paid:
    if context.config.reward.unanswered == "model":
        return make_classifier(context, RetrievalOrModelScorer)
    return pay(context, RetrievalScorer(context.config.reward))
