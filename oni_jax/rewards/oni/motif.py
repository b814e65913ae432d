"""Motif (offline): a ranking model that `launch.train_reward` has trained beforehand."""

import jax
import jax.numpy as jnp

from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.ops.moments import Moments
from oni_jax.rewards.combine import Paid, pay
from oni_jax.rewards.oni.reward_model import RewardModel
from oni_jax.rewards.oni.scoring import ObservationScorer
from oni_jax.rewards.registry import RewardContext, threshold
from oni_jax.rewards.reward_type import trained_model
from oni_jax.settings.fields import UserError
from oni_jax.settings.rewards import RewardConfig
from oni_jax.types import Array, EnvSpec, PyTree


class MotifScorer(ObservationScorer):
    """The model's reward, normalised as in its training; 0 unless above a quantile of its training rewards.

    Args:
        model: its network, parameters, moments and quantiles.
        quantile: one of those saved with the model.

    Raises:
        UserError: the quantile was not saved, or the environment lacks an observation that the model reads.
    """

    def __init__(self, config: RewardConfig, spec: EnvSpec, model: RewardModel, quantile: float):
        if quantile not in model.quantiles:
            known = ", ".join(f"{saved:g}" for saved in sorted(model.quantiles))
            raise UserError(f"--eps_threshold_quantile {quantile:g}: with a reward_dir it must be one of {known}")
        self._trained = model
        super().__init__(make_ranking_network(model.network), spec, config.rew_norm, model.quantiles[quantile])

    def init(self, key: Array) -> PyTree:
        return jax.tree.map(jnp.asarray, self._trained.params)

    def params(self, state: PyTree) -> PyTree:
        return state

    def moments(self, state: PyTree) -> Moments:
        return Moments(jnp.float32(self._trained.mean), jnp.float32(self._trained.variance), jnp.float32(1))


def make(context: RewardContext) -> Paid:
    reward = context.config.reward
    model = trained_model(reward.reward_dir)
    return pay(context, MotifScorer(reward, context.spec, model, threshold(context.config)))
