"""Several epochs of minibatches are the steps that a plain loop makes; one of each is a step on the whole batch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from oni_jax.learner.descent import Epochs, Examples, Learnt, make_epochs_fn, make_step_fn
from oni_jax.learner.loss import RewardCoeffs, make_loss_fn, make_targets_fn
from oni_jax.learner.shards import shard_take
from oni_jax.learner.update import SOURCES, TrainState, make_optimizer, make_update_fn
from oni_jax.networks.policy import init_params
from oni_jax.parallel import Replicas
from oni_jax.settings.learning import LearnerConfig
from oni_jax.types import RewardOutput
from tests.learner.test_update import POLICY, SPEC, assert_equal, copied, unpack

NUM_STEPS, BATCH = 5, 6
LEARNER = LearnerConfig(learning_rate=1e-2, gamma=0.9, gae_lambda=0.8)
COEFFS = RewardCoeffs(1.0, {"other": 0.5})
OPTIMIZER = make_optimizer(LEARNER)
LOSS_FN = make_loss_fn(POLICY.apply, LEARNER, COEFFS)
TARGETS_FN = make_targets_fn(POLICY.apply, LEARNER, COEFFS)
KEY = jax.random.key(3)
TAKE = shard_take(Replicas(jax.devices()[:1]))


@functools.cache
def example():
    steps = np.random.default_rng(0).normal(size=(NUM_STEPS + 1, BATCH, 14)).astype(np.float32)
    trajectory = unpack((steps, POLICY.initial_state(BATCH)), jnp.int32(0))
    params = init_params(POLICY, SPEC, jax.random.key(0))
    intrinsic = np.random.default_rng(1).normal(size=(1, NUM_STEPS, BATCH)).astype(np.float32)
    return steps, Learnt(params, OPTIMIZER.init(params)), trajectory, intrinsic


def descend(number: int, num_minibatches: int):
    """(learnt, metrics, indices of the minibatches)"""
    _, learnt, trajectory, intrinsic = example()
    seen: list[np.ndarray] = []

    def take(indices, examples):
        jax.debug.callback(lambda x: seen.append(np.array(x)), indices, ordered=True)
        return TAKE(indices, examples)

    epochs = Epochs(number, num_minibatches, BATCH, TARGETS_FN, take)
    found = jax.jit(make_epochs_fn(LOSS_FN, OPTIMIZER, epochs))(learnt, trajectory, intrinsic, KEY)
    jax.effects_barrier()
    return *found, seen


def test_the_steps_are_those_of_a_loop():
    found, metrics, seen = descend(2, 2)
    assert [sorted([*seen[i], *seen[i + 1]]) for i in (0, 2)] == [[*range(BATCH)]] * 2
    assert len({tuple(indices) for indices in seen}) == 4  # shuffled anew in each epoch
    _, (params, opt_state), trajectory, intrinsic = example()
    targets = TARGETS_FN(params, trajectory, intrinsic)
    entropies, greatest = [], []
    loss_and_grads = jax.jit(jax.value_and_grad(LOSS_FN, has_aux=True))
    for indices in seen:
        examples = TAKE(jnp.array(indices), Examples(trajectory, jnp.array(intrinsic), targets))
        (_, aux), grads = loss_and_grads(params, *examples)
        updates, opt_state = OPTIMIZER.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        entropies.append(aux["entropy"])
        greatest.append(aux["ratio_max"])
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), found.params, params)
    np.testing.assert_allclose(metrics["entropy"], np.mean(entropies), rtol=1e-5)
    np.testing.assert_allclose(metrics["ratio_max"], np.max(greatest), rtol=1e-5)
    assert metrics["intrinsic_rewards"].shape == (NUM_STEPS, BATCH)


def test_one_epoch_of_one_minibatch_is_a_step_on_the_batch():
    found, metrics, _ = descend(1, 1)
    _, learnt, trajectory, intrinsic = example()
    expected, all_metrics = jax.jit(make_step_fn(LOSS_FN, OPTIMIZER))(learnt, trajectory, intrinsic, KEY)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-6), found.params, expected.params)
    assert metrics.keys() == all_metrics.keys()
    for name, x in all_metrics.items():
        np.testing.assert_allclose(metrics[name], x, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("bad", [False, True])
def test_nan_in_one_step_skips_the_update(bad):
    steps, learnt, _, _ = example()
    steps = steps.copy()
    steps[2, 1, 8] = np.nan if bad else 0.0  # a reward

    def score(state, trajectory, features, key):
        return RewardOutput(jnp.zeros((1, *trajectory.rewards.shape)), state)

    update = make_update_fn(LOSS_FN, score, OPTIMIZER, unpack, Epochs(2, 3, BATCH, TARGETS_FN, TAKE))
    state = TrainState(*learnt, (), jax.random.key_data(KEY))
    batch = type("Batch", (), {"payload": (steps, POLICY.initial_state(BATCH)), "features": ()})
    found, metrics = update(state, batch, np.int32(0))  # type: ignore
    assert bool(metrics["bad_update"]) == bad
    if bad:
        assert_equal(copied(found), copied(state))
        assert SOURCES[int(metrics["not_finite"])] == "environment's rewards"
