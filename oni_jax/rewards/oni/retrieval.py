"""ONI-Retrieval: a caption's reward is the LLM's label of it (or its probability), 0 while it has none."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from oni_jax.annotation.queries.choices import decode_label
from oni_jax.rewards.base import Seen
from oni_jax.rewards.combine import Paid, pay
from oni_jax.rewards.oni.answer_table import AnswerTable
from oni_jax.rewards.oni.classification import ClassificationScorer
from oni_jax.rewards.oni.classification import make as make_classifier
from oni_jax.rewards.registry import RewardContext
from oni_jax.settings.rewards import RewardConfig
from oni_jax.types import Annotation, Array, CaptionBatch, ModelState


class RetrievalScorer(AnswerTable):
    """A table caption -> label, or its probability."""

    def __init__(self, config: RewardConfig):
        is_soft = config.llm_reward_value == "probability"
        super().__init__(lambda kept: float(decode_label(kept).probability if is_soft else decode_label(kept).label))
        self._helpful: set[bytes] = set()  # those whose label says so

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        super().ingest(annotations)
        for caption, answer in ((a.item[0], a.answer) for a in annotations if a.answer is not None):
            (self._helpful.add if decode_label(answer).label else self._helpful.discard)(caption)

    def metrics(self) -> Mapping[str, Array]:
        return {"helpful_fraction": np.float32(len(self._helpful) / len(self._values))} if self._values else {}


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
