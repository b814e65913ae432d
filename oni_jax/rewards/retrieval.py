"""ONI-Retrieval: a message's reward is the label that the LLM gave it (or its probability), 0 while it has none."""

from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.annotation.queries.choices import decode_label
from oni_jax.config import RewardConfig
from oni_jax.rewards.base import Scorer
from oni_jax.rewards.combine import Paid, pay
from oni_jax.rewards.registry import RewardContext
from oni_jax.types import Annotation, Array, CaptionBatch, Item, PyTree


class RetrievalScorer(Scorer):
    """A table message -> label. What it holds lives in the label store, so a checkpoint needs none of it."""

    def __init__(self, config: RewardConfig):
        self._soft = config.llm_reward_value == "probability"
        self._labels: dict[bytes, float] = {}
        self._newest: Sequence[bytes] = ()  # captions of the last batch

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        labels = np.array([self._labels.get(message, 0.0) for message in captions.messages], np.float32)
        return {"labels": labels[captions.index]}  # [T, B] float32

    def raw_values(
        self, state: PyTree, index: Array, observations: Mapping[str, Array], features: Mapping[str, Array]
    ) -> Array:
        del state, index, observations
        return features["labels"]

    def observe_captions(self, captions: CaptionBatch) -> None:
        self._newest = captions.messages

    def queries(self) -> Sequence[Item]:
        return [(message,) for message in self._newest if message and message not in self._labels]

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        known = [(a.item[0], decode_label(a.answer)) for a in annotations if a.answer is not None]
        self._labels.update({text: x.probability if self._soft else float(x.label) for text, x in known})


def make(context: RewardContext) -> Paid:
    return pay(context, RetrievalScorer(context.config.reward))
