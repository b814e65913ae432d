"""ONI-Retrieval: a message's reward is the label that the LLM gave it (or its probability), 0 while it has none."""

from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.config import RewardConfig
from oni_jax.rewards.base import Item, Reward
from oni_jax.types import UNKNOWN, Annotation, Array, CaptionBatch, PyTree, Trajectory


class RetrievalReward(Reward):
    """A table message -> label. What it holds lives in the label store, so a checkpoint needs none of it."""

    def __init__(self, config: RewardConfig):
        self._soft = config.llm_reward_value == "probability"
        self._labels: dict[bytes, float] = {}

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        labels = np.array([self._labels.get(message, 0.0) for message in captions.messages], np.float32)
        return {"labels": labels[captions.index]}  # [T, B] float32

    def raw_rewards(self, state: PyTree, trajectory: Trajectory, features: Mapping[str, Array]) -> Array:
        del state, trajectory
        return features["labels"]

    def requests(self, captions: CaptionBatch) -> Sequence[Item]:
        return [(message,) for message in captions.messages if message and message not in self._labels]

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        known = [a for a in annotations if a.label != UNKNOWN]
        self._labels.update({a.item[0]: a.probability if self._soft else float(a.label) for a in known})
