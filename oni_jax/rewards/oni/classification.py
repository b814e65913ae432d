"""ONI-Classification: a classifier learns the LLM's labels, and scores every caption, labelled or not."""

import sys
from collections.abc import Mapping, Sequence
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.annotation.queries.choices import decode_label
from oni_jax.networks.classifier import MessageClassifier, helpful_probabilities
from oni_jax.networks.ragged import map_messages, map_unique_messages
from oni_jax.ops import losses
from oni_jax.parallel import Replicas
from oni_jax.rewards.base import Scorer, Seen, newest
from oni_jax.rewards.combine import Paid, pay
from oni_jax.rewards.oni.messages import MESSAGE_SIZE, captions_of, message_array, unique_messages
from oni_jax.rewards.registry import RewardContext
from oni_jax.rewards.trainer import Noise, RewardTrainer
from oni_jax.settings.fields import UserError
from oni_jax.settings.rewards import RewardConfig
from oni_jax.types import Annotation, Array, ArraySpec, CaptionBatch, Item, ModelState, PyTree

NUM_ASKED_AT_ONCE = 64  # captions whose doubts are computed together: one shape, so that it is compiled once
KNOWN_WELL = 0.05  # expected error of a label below which it is not asked for
COLUMNS = {"message": ArraySpec((MESSAGE_SIZE,), "uint8"), "label": ArraySpec((), "int32")}


class ClassificationScorer(Scorer):
    """Values a caption by 1 where P(helpful) is above a threshold, else 0; or by P(helpful). The empty one scores 0.

    Args:
        seed: seed of the gradient steps' batches.
        replicas: devices of the gradient steps; all there are when left out.
        ask: captions to ask about: `new` or `uncertain`.
    """

    def __init__(self, config: RewardConfig, model: str, seed: int, replicas: Replicas | None = None, ask: str = "new"):
        self._soft = config.llm_reward_value == "probability"
        self._threshold = config.classification_threshold
        self.network = MessageClassifier(model)
        self._trainer = RewardTrainer(COLUMNS, self._loss, config, seed, self.network.dropout_masks, replicas=replicas)
        self._labelled: set[bytes] = set()
        self._newest: Sequence[bytes] = ()  # captions of the last batch
        self._counts: Sequence[int] = ()  # steps of it that have them
        self._asks_unsure = ask == "uncertain"
        self._state: ModelState | None = None  # before the last batch
        self._helpful = jax.jit(lambda params, x: helpful_probabilities(self.network.apply(params, x)))

    def init(self, key: Array) -> ModelState:
        messages = jnp.zeros((1, MESSAGE_SIZE), jnp.uint8)
        return self._trainer.init(jax.jit(self.network.init)(key, messages))

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        return unique_messages(captions)

    def raw_values(self, state: ModelState, seen: Seen, features: Mapping[str, Array]) -> Array:
        def probability(messages: Array) -> Array:
            return helpful_probabilities(self.network.apply(state.params, messages))

        not_empty = features["messages"].any(axis=1)
        probabilities = map_messages(probability, features["messages"], features["used"] & not_empty)
        return probabilities[seen.index]

    def normalise(self, state: ModelState, raw: Array) -> Array:
        return raw if self._soft else jnp.heaviside(raw - self._threshold, 0.0)  # NaN stays NaN: a bad update

    def observe_captions(self, captions: CaptionBatch) -> None:
        self._trainer.on_update()
        self._newest = captions.captions
        if self._asks_unsure:
            self._counts = np.bincount(captions.index.ravel(), minlength=len(captions.captions)).tolist()

    def acting(self, state: ModelState) -> PyTree:
        self._state = state
        return ()

    def doubts(self, state: ModelState, asked: Sequence[bytes]) -> np.ndarray | None:
        found = [np.zeros(0, np.float32)]
        for first in range(0, len(asked), NUM_ASKED_AT_ONCE):
            rows = [*asked[first : first + NUM_ASKED_AT_ONCE]]
            messages = message_array([*rows, *[b""] * (NUM_ASKED_AT_ONCE - len(rows))])
            helpful = np.asarray(self._helpful(state.params, messages))[: len(rows)]
            found.append(np.minimum(helpful, 1 - helpful))
        return np.concatenate(found)

    def queries(self, limit: int = sys.maxsize) -> Sequence[Item]:
        new = [x for x in self._newest if x and x[:MESSAGE_SIZE] not in self._labelled]
        if self._asks_unsure and self._state is not None and new and limit:
            doubts = dict(zip(new, self.doubts(self._state, new)))  # type: ignore
            counts = dict(zip(self._newest, self._counts))
            new = sorted((x for x in new if doubts[x] > KNOWN_WELL), key=lambda x: doubts[x] * counts[x])
        return newest(((x,) for x in reversed(new)), limit)

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        answered = ((a.item[0][:MESSAGE_SIZE], a.answer) for a in annotations if a.answer is not None)
        known = {caption: decode_label(answer).label for caption, answer in answered}
        new = {caption: label for caption, label in known.items() if caption not in self._labelled}
        if new:
            self._labelled.update(new)
            self._trainer.append({"message": message_array(list(new)), "label": np.array(list(new.values()))})

    def steps_due(self) -> int:
        return self._trainer.num_due

    def train_step(self, state: ModelState) -> ModelState:
        return self._trainer.train_step(state)

    def metrics(self) -> Mapping[str, Array]:
        return self._trainer.metrics()

    def save(self) -> Mapping[str, np.ndarray]:
        return self._trainer.save()

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self._trainer.restore(saved)
        self._labelled.update(captions_of(saved.get("rows_message", ())))

    def _loss(self, params: PyTree, rows: Mapping[str, Array], dropout: Noise) -> tuple[Array, Mapping[str, Array]]:
        def read(messages: Array) -> Array:
            return self.network.apply(params, messages, method="read")

        x = map_unique_messages(read, rows["message"], rows["row_index"])
        logits = cast(Array, self.network.apply(params, x, dropout, method="classify"))
        loss = losses.classification_loss(logits, rows["label"])
        accuracy = jnp.mean((logits[:, 1] > logits[:, 0]) == rows["label"])
        return loss, {"loss": loss, "accuracy": accuracy, "helpful_fraction": jnp.mean(rows["label"])}


def make(context: RewardContext, scorer: type[ClassificationScorer] = ClassificationScorer) -> Paid:
    config, model = context.config, context.config.network.torchbeast.msg_model
    if model == "none":
        raise UserError("--encoder_msg_model none: the classifier reads messages; name a message network")
    return pay(context, scorer(config.reward, model, config.run.seed, context.replicas, config.annotation.ask))
