"""ONI-Ranking: a reward model learns which of two captions the LLM prefers."""

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax import parallel
from oni_jax.networks.glyphs import RankingNetwork, make_ranking_network
from oni_jax.networks.ragged import map_unique_messages
from oni_jax.ops import losses
from oni_jax.ops.moments import Moments, initial_moments, update_moments
from oni_jax.rewards.base import newest
from oni_jax.rewards.combine import Paid, pay
from oni_jax.rewards.oni.pairs import NUM_PAIRS_PER_BATCH, PairDraws, stack
from oni_jax.rewards.oni.scoring import ObservationScorer
from oni_jax.rewards.registry import RewardContext, threshold
from oni_jax.rewards.trainer import Noise, RewardTrainer
from oni_jax.types import TIE, Annotation, Array, ArraySpec, CaptionBatch, Item, ModelState, PyTree

MAX_GRAD_NORM = 10.0


class RankingState(NamedTuple):
    model: ModelState
    moments: Moments  # moments of all raw scores so far


class RankingScorer(ObservationScorer):
    """The model's reward, normalised by its running mean and deviation; 0 unless above a threshold.

    Args:
        network: network with its encoder.
        threshold: threshold of the normalised reward.

    Raises:
        UserError: the environment lacks an observation that the encoder reads.
    """

    def __init__(self, context: RewardContext, network: RankingNetwork, threshold: float):
        config = context.config
        super().__init__(network, context.spec, config.reward.rew_norm, threshold)
        columns = {name: ArraySpec((2, *x.shape), x.dtype) for name, x in self._observations.items()}
        columns |= {"id": ArraySpec((2,), "int32"), "label": ArraySpec((), "int32")}
        self._trainer = RewardTrainer(
            columns, self._loss, config.reward, config.run.seed, max_grad_norm=MAX_GRAD_NORM, replicas=context.replicas
        )
        annotation = config.annotation
        # Below the backlog's limit: a query that it drops gets no label for the rest of the run.
        max_waiting = min(2 * annotation.llm_batch_size, max(1, annotation.llm_max_backlog - NUM_PAIRS_PER_BATCH))
        self._pairs = PairDraws(
            self.other_observations,
            config.reward.ranking.subsample,
            config.reward.ranking.remove_duplicated_obs,
            max_waiting,
            config.run.seed,
        )

    def init(self, key: Array) -> RankingState:
        zeros = {name: jnp.zeros((1, *x.shape), x.dtype) for name, x in self._observations.items()}
        return RankingState(self._trainer.init(jax.jit(self._network.init)(key, zeros)), initial_moments())

    def params(self, state: RankingState) -> PyTree:
        return state.model.params

    def moments(self, state: RankingState) -> Moments:
        return state.moments

    def track(self, state: RankingState, raw: Array) -> RankingState:
        return state._replace(moments=update_moments(state.moments, parallel.all_gather(raw, axis=1)))

    def observe_captions(self, captions: CaptionBatch) -> None:
        self._trainer.on_update()
        self._append(self._pairs.draw(captions))

    def queries(self, limit: int = sys.maxsize) -> Sequence[Item]:
        return newest(reversed(self._pairs.waiting()), limit)

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        self._append(self._pairs.ingest(annotations))

    def _append(self, rows: Sequence[Mapping[str, np.ndarray]]) -> None:
        if rows:
            self._trainer.append(stack(rows))

    def steps_due(self) -> int:
        return self._trainer.num_due

    def train_step(self, state: RankingState) -> RankingState:
        return state._replace(model=self._trainer.train_step(state.model))

    def merge(self, scored: RankingState, trained: RankingState) -> RankingState:
        return RankingState(trained.model, scored.moments)

    def metrics(self) -> Mapping[str, Array]:
        return {**self._trainer.metrics(), "pairs_waiting": len(self._pairs.waiting())}

    def save(self) -> Mapping[str, np.ndarray]:
        return {**self._trainer.save(), **self._pairs.save()}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self._trainer.restore(saved)
        self._pairs.restore(saved)

    def _loss(self, params: PyTree, rows: Mapping[str, Array], noise: Noise) -> tuple[Array, Mapping[str, Array]]:
        flat = {name: rows[name].reshape(-1, *rows[name].shape[2:]) for name in self._observations}

        if self._reads_messages_alone:
            rewards = map_unique_messages(self._score_messages(params), flat["message"], rows["id"].ravel())
        else:
            rewards = cast(Array, self._network.apply(params, flat))
        rewards = rewards.reshape(-1, 2)
        loss = losses.ranking_loss(rewards, rows["label"])
        untied_fraction = jnp.mean(rows["label"] != TIE)  # fraction of this device's shard
        weight = untied_fraction / jnp.maximum(1e-9, parallel.mean(untied_fraction))
        accuracy = weight * losses.ranking_accuracy(rewards, rows["label"])
        return loss, {"loss": loss, "accuracy": accuracy, "tie_fraction": 1 - untied_fraction}


def make(context: RewardContext) -> Paid:
    network = make_ranking_network(context.config.network)
    return pay(context, RankingScorer(context, network, threshold(context.config)))
