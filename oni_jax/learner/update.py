"""One update: reward, V-trace, PPO clip, Adam, as one pure function."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from oni_jax.learner.descent import Epochs, Learnt, make_epochs_fn, make_step_fn
from oni_jax.learner.loss import LossFn
from oni_jax.rewards.terms import Features
from oni_jax.settings.learning import LearnerConfig
from oni_jax.types import Array, PyTree, RewardOutput, Trajectory


class TrainState(NamedTuple):
    """The state that an update replaces."""

    params: PyTree
    opt_state: PyTree
    reward_state: PyTree
    key: Array  # [2] uint32; with the versions, the source of all randomness


class Batch(NamedTuple):
    """Inputs of an update, on the devices."""

    payload: PyTree  # payload of the world, see `unpack`
    features: Features  # the rewards' look-ups


# Float32 scalars, distributions [T, B] that stay on the device, and each intrinsic reward [K, T, B].
Metrics = Mapping[str, Array]
Score = Callable[[PyTree, Trajectory, Features, Array], RewardOutput]  # the signature of `RewardSum.score`
Update = Callable[[TrainState, Batch, Array], tuple[TrainState, Metrics]]

# Values checked for NaN or inf, causes before effects. The metric `not_finite` is an index into it, or -1.
SOURCES = (
    "observations",
    "environment's rewards",
    "intrinsic rewards",
    "states of the rewards",
    "parameters",
    "outputs of the policy when it acted",
    "loss or its gradients",
)


def make_optimizer(config: LearnerConfig) -> optax.GradientTransformation:
    """Makes Adam with clipping of the gradients' global norm."""
    adam = optax.adam(config.learning_rate, config.adam_beta1, config.adam_beta2, config.adam_eps)
    clip = optax.clip_by_global_norm(config.max_grad_norm) if config.max_grad_norm > 0 else optax.identity()
    return optax.chain(clip, adam)


def make_update_fn(
    loss_fn: LossFn,
    score: Score,
    optimizer: optax.GradientTransformation,
    unpack: Callable[[PyTree, Array], Trajectory],
    epochs: Epochs | None = None,
) -> Update:
    """Returns the pure update(state, batch, version) -> (state, metrics); version [] int32: of the parameters.

    A bad update, with NaN or inf in loss, gradients or reward states, leaves the state as it is; metric `bad_update`.

    epochs: of several steps on minibatches; one step on the whole batch when left out.
    """
    descend = make_step_fn(loss_fn, optimizer) if epochs is None else make_epochs_fn(loss_fn, optimizer, epochs)

    def update(state: TrainState, batch: Batch, version: Array) -> tuple[TrainState, Metrics]:
        trajectory = unpack(batch.payload, version)
        score_key, key = (jax.random.fold_in(jax.random.fold_in(state.key, i), version) for i in (4, 3))
        known = trajectory._replace(policy_params=state.params)
        scored = score(state.reward_state, known, batch.features, score_key)
        intrinsic_rewards = jax.lax.stop_gradient(scored.rewards)
        learnt = Learnt(state.params, state.opt_state)
        (params, opt_state), metrics = descend(learnt, trajectory, intrinsic_rewards, key)
        changed = changed_leaves(scored.state, state.reward_state)
        bad = ~(jnp.isfinite(metrics["loss"]) & jnp.isfinite(metrics["grad_norm"]) & _is_finite(changed))
        updated = TrainState(params, opt_state, scored.state, state.key)
        acted = (trajectory.initial_core_state, trajectory.behaviour_logits, trajectory.values)
        sources = (trajectory.observations, trajectory.rewards, intrinsic_rewards, changed, state.params, acted)
        metrics = {
            **metrics,
            "bad_update": bad,
            "not_finite": jnp.where(bad, _first_not_finite(sources), -1),
            "each_intrinsic_reward": intrinsic_rewards,
        }
        # Not optax.apply_if_finite: the running statistics of the reward stay as they are, too.
        return jax.tree.map(functools.partial(_unless, bad), updated, state), metrics

    return update


def _unless(bad: Array, new: Array, old: Array) -> Array:
    return old if new is old else jnp.where(bad, old, new)  # an unchanged leaf costs nothing


def _is_finite(tree: PyTree) -> Array:
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.all(jnp.array([jnp.isfinite(x).all() for x in floats]))


def _first_not_finite(trees: Sequence[PyTree]) -> Array:
    """Returns the index of the first tree with NaN or inf; the number of trees when none has any."""
    return jnp.argmax(jnp.array([*(~_is_finite(tree) for tree in trees), True]))


Changes = Mapping[int, Array]  # leaves of a tree, by index


def changed_leaves(new: PyTree, old: PyTree) -> Changes:
    """Returns the leaves of `new` that are not the same objects in `old`."""
    leaves = zip(jax.tree.leaves(new), jax.tree.leaves(old), strict=True)
    return {i: after for i, (after, before) in enumerate(leaves) if after is not before}


def with_changes(tree: PyTree, changes: Changes) -> PyTree:
    """Returns the tree with some leaves replaced."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, [changes.get(i, leaf) for i, leaf in enumerate(leaves)])


def jit_update(
    update: Update,
    sharding: jax.sharding.Sharding | None = None,
    check: Callable[[int], None] | None = None,
) -> Update:
    """Compiles `update`. It donates the state's buffers, except those of the parameters and the reward's state: the
    published parameters act, and the reward learns, while the next are computed.

    Args:
        sharding: of the new state, replicated; the old one's when left out.
        check: gets the bytes that the update needs on each device, before the first one; what it raises is raised.
    """

    @functools.partial(jax.jit, donate_argnums=0, out_shardings=(sharding, sharding, sharding, None))
    def donating(
        rest: TrainState, params: PyTree, reward_state: PyTree, batch: Batch, version: Array
    ) -> tuple[TrainState, PyTree, Changes, Metrics]:
        state, metrics = update(rest._replace(params=params, reward_state=reward_state), batch, version)
        changes = changed_leaves(state.reward_state, reward_state)  # unchanged leaves are not copied
        # The replacement of `rest` comes first: a donated buffer goes to the first output of its shape, and the
        # parameters have the shapes of Adam's moments.
        return state._replace(params=(), reward_state=()), state.params, changes, metrics

    def step(state: TrainState, batch: Batch, version: Array) -> tuple[TrainState, Metrics]:
        nonlocal check
        inputs = state._replace(params=(), reward_state=()), state.params, state.reward_state, batch, version
        if check:
            check(_num_bytes(donating.lower(*inputs).compile()))  # the program that the call below finds compiled
            check = None
        rest, params, changes, metrics = donating(*inputs)
        return rest._replace(params=params, reward_state=with_changes(state.reward_state, changes)), metrics

    return step


def _num_bytes(compiled: jax.stages.Compiled) -> int:
    """Returns the memory that a program takes on each of its devices, with its inputs; 0: its compiler does not say."""
    needed = compiled.memory_analysis()
    if needed is None:
        return 0
    kept = needed.argument_size_in_bytes + needed.output_size_in_bytes - needed.alias_size_in_bytes
    return kept + needed.temp_size_in_bytes
