"""Active pre-training (APT, Liu and Abbeel 2021, arXiv 2103.04551): observations far from all others pay.

Observations are embedded by a network that learns to predict the action between two of them. Of the distances between
the embedding after a step and those of M other steps of the batch, drawn at random, d(i) are the k smallest:

    reward(t) = log(1 + mean over i of d(i) / m),    m: mean of such distances in all batches so far

An estimate of the entropy of the states that a batch visits, by particles: the rarer a state, the farther its
neighbours.
"""

from collections.abc import Mapping
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from oni_jax import parallel
from oni_jax.networks.initializers import POLICY_INITIALIZATIONS
from oni_jax.networks.inverse_dynamics import InverseDynamics
from oni_jax.ops.moments import Moments, no_moments
from oni_jax.rewards.base import Reward
from oni_jax.rewards.baselines.rnd_inputs import Inputs, Observations, drawn_steps, merged, normalised, rows_at, track
from oni_jax.rewards.registry import RewardContext
from oni_jax.types import Array, ModelState, PyTree, RewardOutput, Trajectory

MIN_DISTANCE = 1e-8  # bound on the mean, for observations that are not all equal


class AptState(NamedTuple):
    model: ModelState
    inputs: Mapping[str, Moments]  # moments of each element of the inputs that are numbers
    distances: Moments  # moments of the distances to the nearest neighbours
    metrics: Mapping[str, Array]  # metrics of the newest gradient step


class AptReward(Reward):
    """Rewards distances between embeddings of observations, and learns these from each batch in `score`."""

    # ELLM: its network learns from errors of all pairs of a batch's actions, and a step is a neighbour of itself.

    reads_counts = False
    only_in_training = "it measures distances to the other steps of a batch of training"

    def __init__(self, context: RewardContext):
        network, self._config = context.config.network, context.config.reward
        self._reader, self._frozen = Observations(context), context.frozen
        self.final_observations = self._reader.names
        encoder = self._reader.encoder
        initialization = POLICY_INITIALIZATIONS[network.policy_initialization]
        num_actions = context.spec.num_actions
        self._network = InverseDynamics(
            encoder, network.hidden_size, self._config.apt.output_dim, num_actions, initialization
        )
        self._optimizer = optax.adam(self._config.apt.learning_rate)

    def init(self, key: Array) -> AptState:
        zeros, moments = self._reader.zeros(), self._reader.no_moments()
        params = jax.jit(self._network.init)(key, zeros, zeros)
        metrics: Mapping[str, Array] = dict.fromkeys(("loss", "accuracy"), jnp.float32(0))
        return AptState(ModelState(params, self._optimizer.init(params)), moments, no_moments(()), metrics)

    def score(self, state: AptState, trajectory: Trajectory, features: Mapping[str, Array], key: Array) -> RewardOutput:
        after = self._reader.read(trajectory)
        moments = {name: m if self._frozen else track(m, after[name]) for name, m in state.inputs.items()}
        before = normalised(self._reader.read_before(trajectory), moments)
        after = normalised(after, moments)
        embedded = cast(Array, self._network.apply(state.model.params, merged(after), method="embed"))
        nearest = self._nearest(embedded.reshape(*trajectory.rewards.shape, -1), key)
        distances = state.distances if self._frozen else track(state.distances, nearest)
        rewards = jnp.log1p(nearest / jnp.maximum(distances.mean, MIN_DISTANCE))
        if self._frozen:
            return RewardOutput(rewards, state)
        index = drawn_steps(key, rewards.shape, self._config.apt.update_proportion)
        before, after = (merged(rows_at(x, index)) for x in (before, after))
        model, metrics = self._learn(state.model, before, after, rows_at(trajectory.actions, index).reshape(-1))
        return RewardOutput(rewards, AptState(model, moments, distances, metrics))

    def _nearest(self, embedded: Array, key: Array) -> Array:
        """Returns the mean distance [T, B] to the nearest of a sample of all devices' embeddings [T, B, D]."""
        every = parallel.all_gather(embedded, axis=1)
        numbers = jnp.arange(every.shape[0] * every.shape[1]).reshape(every.shape[:2])
        drawn = jax.random.permutation(key, numbers.size)[: self._config.apt.particles]
        particles = every.reshape(-1, every.shape[-1])[drawn]
        products = jnp.einsum("tbd,md->tbm", embedded, particles, precision="highest")
        squares = jnp.sum(embedded**2, axis=-1)[..., None] + jnp.sum(particles**2, axis=-1) - 2 * products
        is_self = parallel.local_shard(numbers, axis=1)[..., None] == drawn
        distances = jnp.where(is_self, jnp.inf, jnp.sqrt(jnp.maximum(squares, 0.0)))
        count = min(self._config.apt.neighbours, len(drawn) - 1)
        return -jnp.mean(jax.lax.top_k(-distances, max(1, count))[0], axis=-1)

    def _learn(
        self, model: ModelState, before: Inputs, after: Inputs, actions: Array
    ) -> tuple[ModelState, Mapping[str, Array]]:
        def loss_fn(params: PyTree) -> tuple[Array, Array]:
            logits = cast(Array, self._network.apply(params, before, after))
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, actions)
            return jnp.mean(losses), jnp.mean(jnp.argmax(logits, axis=-1) == actions)

        (loss, accuracy), grads = parallel.mean(jax.value_and_grad(loss_fn, has_aux=True)(model.params))
        updates, opt_state = self._optimizer.update(grads, model.opt_state, model.params)
        params = optax.apply_updates(model.params, updates)
        return ModelState(params, opt_state), {"loss": loss, "accuracy": accuracy}

    def state_metrics(self, state: AptState) -> Mapping[str, Array]:
        return {**state.metrics, "distance": state.distances.mean}


def make(context: RewardContext) -> AptReward:
    return AptReward(context)
