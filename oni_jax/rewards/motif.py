"""Motif (offline): a ranking model that `launch.train_reward` has trained beforehand."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.config import RewardConfig, UserError
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.ops.moments import Moments, normalise
from oni_jax.preferences.reward_model import RewardModel
from oni_jax.rewards.base import Scorer
from oni_jax.rewards.combine import Paid, pay
from oni_jax.rewards.registry import RewardContext, threshold, trained_model
from oni_jax.rewards.scoring import ObservationModel
from oni_jax.types import Array, CaptionBatch, EnvSpec, PyTree


class MotifScorer(Scorer):
    """The model's reward, normalised as in its training, 0 unless above a quantile of its training rewards.

    Args:
        model: its network, parameters, moments and quantiles.
        quantile: one of those saved with the model.

    Raises:
        UserError: the quantile was not saved, or the environment lacks an observation that the model reads.
    """

    def __init__(self, config: RewardConfig, spec: EnvSpec, model: RewardModel, quantile: float):
        if quantile not in model.quantiles:
            known = ", ".join(f"{share:g}" for share in sorted(model.quantiles))
            raise UserError(f"--eps_threshold_quantile {quantile:g}: with a reward_dir it must be one of {known}")
        self._trained, self._threshold = model, model.quantiles[quantile]
        self._normalised = config.rew_norm
        self._model = ObservationModel(make_ranking_network(model.network), spec)
        self.other_observations = self._model.other_observations

    def init(self, key: Array) -> PyTree:
        """The trained parameters."""
        del key
        return jax.tree.map(jnp.asarray, self._trained.params)

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        return self._model.prepare(captions)

    def raw_values(
        self, state: PyTree, index: Array, observations: Mapping[str, Array], features: Mapping[str, Array]
    ) -> Array:
        return self._model.score(state, index, observations, features)

    def from_raw(self, state: PyTree, raw: Array) -> Array:
        if not self._normalised:
            return raw
        moments = Moments(jnp.float32(self._trained.mean), jnp.float32(self._trained.variance), jnp.float32(1))
        normalised = normalise(raw, moments)
        return jnp.where(normalised <= self._threshold, 0.0, normalised)  # NaN stays NaN, for the update to see


def make(context: RewardContext) -> Paid:
    reward = context.config.reward
    model = trained_model(reward.reward_dir)
    return pay(context, MotifScorer(reward, context.spec, model, threshold(context.config)))
