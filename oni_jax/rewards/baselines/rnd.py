"""Random network distillation (Burda et al. 2018, arXiv:1810.12894): curiosity about what is seldom observed.

A predictor learns the outputs of a fixed random network. Its error is small for observations like those that it has
learnt from:

    curiosity(t) = 1/2 |target(x) - predictor(x)|^2,    x = clip((observation after step t - mean) / deviation, -5, 5)
    reward(t)    = curiosity(t) / deviation of c(t),    c(t) = gamma c(t-1) + curiosity(t), from 0 in each trajectory

Means and deviations are those of all batches so far, this one included. Then the predictor learns from the batch.

NovelD (Zhang et al. 2021, "NovelD: A Simple yet Effective Exploration Criterion") pays at the border of what is known,
with e(x) = 1/2 |target(x) - predictor(x)|^2 of the observations before and after a step:

    curiosity(t) = max(e(after) - alpha e(before), 0)
"""

from collections.abc import Mapping
from typing import NamedTuple, cast

import chex
import jax
import jax.numpy as jnp
import optax

from oni_jax import parallel
from oni_jax.networks.distillation import Embedding
from oni_jax.networks.initializers import POLICY_INITIALIZATIONS
from oni_jax.ops.moments import Moments, deviation, no_moments
from oni_jax.rewards.base import Reward
from oni_jax.rewards.baselines.rnd_inputs import (
    READERS,
    Inputs,
    Observations,
    drawn_steps,
    merged,
    normalised,
    rows_at,
    track,
)
from oni_jax.rewards.registry import RewardContext
from oni_jax.types import Array, ModelState, PyTree, RewardOutput, Trajectory

ADAM_EPS = 1e-5  # above the gradients that are rounding errors, such as those of inputs that never change


class RndState(NamedTuple):
    target: PyTree  # parameters of the random network
    predictor: ModelState
    inputs: Mapping[str, Moments]  # moments of each element of the inputs that are numbers
    sums: Moments  # moments of the discounted sums of curiosity
    metrics: Mapping[str, Array]  # metrics of the newest gradient step


class RndReward(Reward):
    """Rewards curiosity about the observation after a step, and learns from each batch in `score`.

    Args:
        reader: reads from a trajectory what the networks see.
        alpha: alpha of NovelD; 0: random network distillation alone.
    """

    reads_counts = False

    def __init__(self, context: RewardContext, reader: Observations, alpha: float = 0.0):
        network, config = context.config.network, context.config.reward
        self.final_observations = reader.names
        self._reader, self._frozen, self._gamma = reader, context.frozen, context.config.learner.gamma
        self._alpha = alpha
        initialization, width = POLICY_INITIALIZATIONS[network.policy_initialization], network.hidden_size
        self._target = Embedding(reader.encoder, (), config.rnd.output_dim, initialization)
        self._predictor = self._target.clone(hidden_sizes=(width, width))
        self._proportion = config.rnd.update_proportion
        self._optimizer = optax.adam(config.rnd.learning_rate, eps=ADAM_EPS)

    def init(self, key: Array) -> RndState:
        keys, zeros = jax.random.split(key), self._reader.zeros()
        target, params = (jax.jit(network.init)(k, zeros) for network, k in zip((self._target, self._predictor), keys))
        return RndState(
            target=target,
            predictor=ModelState(params, self._optimizer.init(params)),
            inputs=self._reader.no_moments(),
            sums=no_moments(()),
            metrics=dict.fromkeys(("loss", "grad_norm"), jnp.float32(0)),
        )

    def score(self, state: RndState, trajectory: Trajectory, features: Mapping[str, Array], key: Array) -> RewardOutput:
        shape = trajectory.rewards.shape
        inputs = self._reader.read(trajectory)
        moments = state.inputs if self._frozen else {name: track(m, inputs[name]) for name, m in state.inputs.items()}
        inputs = normalised(inputs, moments)
        targets, predictions = self._outputs(state, inputs)
        curiosity = _error(targets, predictions)
        if self._alpha:
            before = normalised(self._reader.read_before(trajectory), moments)
            curiosity = jnp.maximum(curiosity - self._alpha * _error(*self._outputs(state, before)), 0.0)
        sums = state.sums if self._frozen else track(state.sums, discounted_sums(curiosity, self._gamma))
        rewards = curiosity / deviation(sums)
        if self._frozen:
            return RewardOutput(rewards, state)
        index = drawn_steps(key, shape, self._proportion)
        predictor, metrics = self._learn(state.predictor, *(rows_at(x, index) for x in (inputs, targets)))
        return RewardOutput(rewards, RndState(state.target, predictor, moments, sums, metrics))

    def _outputs(self, state: RndState, inputs: Inputs) -> tuple[Array, Array]:
        """Returns the outputs [T, B, D] of the random network and of the predictor."""
        target = self._apply(self._target, state.target, inputs)
        return target, self._apply(self._predictor, state.predictor.params, inputs)

    def _apply(self, network: Embedding, params: PyTree, inputs: Inputs) -> Array:
        """Returns the outputs [T, B, D] for inputs [T, B, ...]."""
        shape = next(iter(inputs.values())).shape[:2]
        return cast(Array, network.apply(params, merged(inputs))).reshape(*shape, -1)

    def _learn(self, model: ModelState, inputs: Inputs, targets: Array) -> tuple[ModelState, Mapping[str, Array]]:
        def loss_fn(params: PyTree) -> Array:
            return jnp.mean((targets - self._apply(self._predictor, params, inputs)) ** 2)

        loss, grads = parallel.mean(jax.value_and_grad(loss_fn)(model.params))
        updates, opt_state = self._optimizer.update(grads, model.opt_state, model.params)
        model = ModelState(optax.apply_updates(model.params, updates), opt_state)
        return model, {"loss": loss, "grad_norm": optax.tree.norm(grads)}

    def state_metrics(self, state: RndState) -> Mapping[str, Array]:
        return {**state.metrics, "deviation": deviation(state.sums)}


def discounted_sums(x: Array, gamma: float) -> Array:
    """Returns c [T, B] with c(t) = gamma c(t-1) + x(t) and c(-1) = 0."""
    chex.assert_rank(x, 2)

    # BK: carried on from batch to batch. A batch's trajectories are not those of the same environments as the last's.
    def step(total: Array, now: Array) -> tuple[Array, Array]:
        total = gamma * total + now
        return total, total

    return jax.lax.scan(step, jnp.zeros_like(x[0]), x)[1]


def _error(targets: Array, predictions: Array) -> Array:
    """Returns e [...] of outputs [..., D]."""
    return 0.5 * jnp.sum((targets - predictions) ** 2, axis=-1)


def make(context: RewardContext) -> RndReward:
    return RndReward(context, READERS[context.config.reward.rnd.features](context))


def make_noveld(context: RewardContext) -> RndReward:
    reward = context.config.reward
    return RndReward(context, READERS[reward.rnd.features](context), reward.noveld.alpha)
