"""Gradient steps of an update: one on the whole batch, or several epochs of minibatches."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from oni_jax.learner.loss import LossFn, TargetsFn, reward_distributions
from oni_jax.ops.vtrace import VTraceOutput
from oni_jax.types import Array, PyTree, Trajectory


class Learnt(NamedTuple):
    """The part of the training state that gradient steps replace."""

    params: PyTree
    opt_state: PyTree


class Examples(NamedTuple):
    """Trajectories with all that their loss depends on."""

    trajectory: Trajectory
    intrinsic_rewards: Array  # [K, T, B]
    targets: VTraceOutput | None  # each [T, B]; None: computed with the loss


class Epochs(NamedTuple):
    """Several passes over a batch."""

    number: int
    num_minibatches: int
    num_trajectories: int  # B', of a device
    targets_fn: TargetsFn
    take: Callable[[Array, Examples], Examples]  # (indices [B' / num_minibatches] int32, of B'; examples) -> examples


# (learnt, trajectory, intrinsic_rewards, key) -> (learnt, metrics)
Descend = Callable[[Learnt, Trajectory, Array, Array], tuple[Learnt, Mapping[str, Array]]]


def make_step_fn(loss_fn: LossFn, optimizer: optax.GradientTransformation) -> Descend:
    """Returns the pure function of one gradient step on the whole batch."""

    def descend(
        learnt: Learnt, trajectory: Trajectory, intrinsic_rewards: Array, key: Array
    ) -> tuple[Learnt, Mapping[str, Array]]:
        return _step(loss_fn, optimizer, learnt, Examples(trajectory, intrinsic_rewards, None))

    return descend


def make_epochs_fn(loss_fn: LossFn, optimizer: optax.GradientTransformation, epochs: Epochs) -> Descend:
    """Returns the pure function of `epochs`: PPO's steps on minibatches that the key shuffles.

    Value targets and advantages are those of the first parameters. Metrics are means over the steps, so that NaN or inf
    in one step shows; but the least of `_min`, the greatest of `_max`, and the sum of an epoch of `num_`.
    """

    def descend(
        learnt: Learnt, trajectory: Trajectory, intrinsic_rewards: Array, key: Array
    ) -> tuple[Learnt, Mapping[str, Array]]:
        targets = jax.lax.stop_gradient(epochs.targets_fn(learnt.params, trajectory, intrinsic_rewards))
        examples = Examples(trajectory, intrinsic_rewards, targets)

        def step(learnt: Learnt, indices: Array) -> tuple[Learnt, Mapping[str, Array]]:
            learnt, metrics = _step(loss_fn, optimizer, learnt, epochs.take(indices, examples))
            return learnt, {name: x for name, x in metrics.items() if not jnp.ndim(x)}

        learnt, metrics = jax.lax.scan(step, learnt, _minibatches(key, epochs))
        scalars = {name: _of_steps(name, x, epochs.number) for name, x in metrics.items()}
        return learnt, {**scalars, **reward_distributions(trajectory, intrinsic_rewards)}

    return descend


def _step(
    loss_fn: LossFn, optimizer: optax.GradientTransformation, learnt: Learnt, examples: Examples
) -> tuple[Learnt, Mapping[str, Array]]:
    (loss, metrics), grads = jax.value_and_grad(loss_fn, has_aux=True)(learnt.params, *examples)
    updates, opt_state = optimizer.update(grads, learnt.opt_state, learnt.params)
    params = optax.apply_updates(learnt.params, updates)
    return Learnt(params, opt_state), {**metrics, "loss": loss, "grad_norm": optax.tree.norm(grads)}


def _minibatches(key: Array, epochs: Epochs) -> Array:
    """Returns the indices of all minibatches, [epochs * num_minibatches, B' / num_minibatches]."""
    keys = jnp.stack([jax.random.fold_in(key, epoch) for epoch in range(epochs.number)])
    orders = jax.vmap(lambda key: jax.random.permutation(key, epochs.num_trajectories))(keys)
    return orders.reshape(epochs.number * epochs.num_minibatches, -1)


def _of_steps(name: str, values: Array, num_epochs: int) -> Array:
    if name.startswith("num_"):
        return jnp.sum(values) / num_epochs
    return {"_min": jnp.min, "_max": jnp.max}.get(name[-4:], jnp.mean)(values)
