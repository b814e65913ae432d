"""An update is a pure function; its optimiser is the one configured; it makes the loss smaller."""

import functools
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.learner.loop import Learner, NoAnnotator, Step, Taken
from oni_jax.learner.loss import RewardCoeffs, make_loss_fn
from oni_jax.learner.update import SOURCES, Batch, TrainState, jit_update, make_optimizer, make_update_fn
from oni_jax.networks.policy import init_params, make_policy
from oni_jax.rewards.base import Reward
from oni_jax.rewards.terms import RewardSum, Term
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.types import Array, ArraySpec, EnvSpec, PyTree, RewardOutput, Trajectory

NUM_STEPS, BATCH = 5, 4
VERSION = np.int32(0)
SPEC = EnvSpec({"x": ArraySpec((3,), "float32")}, 4, False, ())
# Neither discount nor a bound on values: targets that stay where they are, on a fixed batch.
LEARNER = LearnerConfig(learning_rate=1e-2, gamma=0.0, ppo_clip_value=100.0)
POLICY = make_policy(NetworkConfig(encoder_custom="mlp_encoder", use_rnn=False, hidden_size=8), SPEC)


class CountingReward(Reward):
    """1 for every step; its state counts the batches."""

    def score(self, state, trajectory, features, key):
        return RewardOutput(features["rewards"] * jnp.ones_like(trajectory.rewards), state + 1)


REWARDS = RewardSum([Term("counting", CountingReward(), 0.5)])


def unpack(payload: tuple[Array, PyTree], version: Array) -> Trajectory:
    """Steps that lie in the batch as random numbers, and the core's states before them."""
    x, core_state = payload
    steps = x[:-1]
    return Trajectory(
        observations={"x": x[..., :3]},
        is_first=x[..., 3] > 1,
        before_counts=jnp.ones_like(steps[..., 0]),
        caused_counts=jnp.ones_like(steps[..., 0]),
        actions=jnp.argmax(steps[..., 4:8], axis=-1).astype(jnp.int32),
        rewards=steps[..., 8],
        terminations=x[1:, ..., 3] > 1,
        truncations=jnp.zeros(steps.shape[:2], bool),
        truncation_values=jnp.zeros_like(steps[..., 0]),
        final_observations={},
        behaviour_logits=0.1 * steps[..., 9:13],
        values=steps[..., 13],
        policy_lags=jnp.full(steps.shape[:2], version),
        initial_core_state=core_state,
    )


@functools.cache
def build():
    """(jitted update, state, batch)"""
    optimizer = make_optimizer(LEARNER)
    loss_fn = make_loss_fn(POLICY.apply, LEARNER, RewardCoeffs(1.0, {"counting": 0.5}))
    params = init_params(POLICY, SPEC, jax.random.key(0))
    state = TrainState(params, optimizer.init(params), jnp.int32(0), jax.random.key_data(jax.random.key(1)))
    steps = np.random.default_rng(0).normal(size=(NUM_STEPS + 1, BATCH, 14)).astype(np.float32)
    batch = Batch(
        payload=(steps, POLICY.initial_state(BATCH)),
        features=({"rewards": np.float32(1)},),
    )
    return jax.jit(make_update_fn(loss_fn, REWARDS.score, optimizer, unpack)), state, batch


def copied(tree: Any) -> Any:
    return jax.tree.map(np.array, tree)


def assert_equal(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_same_inputs_give_the_same_bits_and_stay_as_they_are():
    update, state, batch = build()
    before = copied((state, batch))
    first, second = copied(update(state, batch, VERSION)), copied(update(state, batch, VERSION))
    assert_equal(first, second)
    assert_equal(copied((state, batch)), before)
    changed = jax.tree.map(lambda a, b: bool(np.any(a != b)), first[0].params, before[0].params)
    assert all(jax.tree.leaves(changed))


@pytest.mark.filterwarnings("error")  # it warns of buffers that could not be reused
def test_compiled_it_overwrites_the_state_but_for_what_others_read():
    update, state, batch = build()
    state = jax.tree.map(jnp.array, state)
    expected = copied(update(state, batch, VERSION))
    compiled = jit_update(update)
    rest = jax.tree.leaves(state._replace(params=(), reward_state=()))
    memory = [x.unsafe_buffer_pointer() for x in rest]
    new_state, metrics = compiled(state, batch, VERSION)
    # Each part in its place: moments that change places with others are copied first.
    new_rest = jax.tree.leaves(new_state._replace(params=(), reward_state=()))
    assert [x.unsafe_buffer_pointer() for x in new_rest] == memory
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
        (new_state, metrics),
        copied(expected),
    )
    assert not any(x.is_deleted() for x in jax.tree.leaves((state.params, state.reward_state)))
    assert all(x.is_deleted() for x in rest)


def test_buffers_that_an_update_keeps_are_not_copied():
    _, state, batch = build()
    update = make_update_fn(
        make_loss_fn(POLICY.apply, LEARNER, RewardCoeffs(1.0, {"counting": 0.5})),
        RewardSum([Term("none", Reward(), 0.0)]).score,
        make_optimizer(LEARNER),
        unpack,
    )
    model = jnp.arange(1000.0)
    new_state, _ = jit_update(update)(jax.tree.map(jnp.array, state)._replace(reward_state=model), batch, VERSION)
    assert new_state.reward_state.unsafe_buffer_pointer() == model.unsafe_buffer_pointer()


def test_the_state_can_be_saved_after_a_step_that_failed():
    update, state, batch = build()
    world: Any = SimpleNamespace(begin_update=lambda: None, runs_ahead=True)
    learner = Learner(Step(cast(Any, None), update), REWARDS, world, NoAnnotator(), state)
    learner.state = jax.tree.map(jnp.array, state)

    def fail(timeout_secs: float) -> None:
        raise RuntimeError("the annotation service died")

    learner._next, learner._take_batch = Taken(batch), fail
    with pytest.raises(RuntimeError):
        learner.step()
    assert learner.state.reward_state == 1
    copied(learner.state)


def with_record(batch: Batch, place: tuple[int, int, int], value: float) -> Batch:
    steps, core_state = batch.payload
    steps = np.array(steps)
    steps[place] = value
    return batch._replace(payload=(steps, core_state))


def with_nan_parameter(state: TrainState) -> TrainState:
    leaves, structure = jax.tree.flatten(state.params)
    leaves[-1] = leaves[-1].at[..., 0].set(np.nan)
    return state._replace(params=jax.tree.unflatten(structure, leaves))


@functools.cache
def bad_inputs() -> dict[str, tuple[TrainState, Batch]]:
    """Cause of a bad update -> (state, batch). The first of two causes is reported."""
    _, state, batch = build()
    intrinsic = batch._replace(features=({"rewards": np.float32(np.nan)},))
    return {
        "observations": (state, with_record(batch, (2, 1, 0), np.inf)),
        "environment's rewards": (state, with_record(intrinsic, (0, 1, 8), np.nan)),
        "intrinsic rewards": (with_nan_parameter(state), intrinsic),
        "parameters": (with_nan_parameter(state), batch),
        "outputs of the policy when it acted": (state, with_record(batch, (0, 1, 9), np.nan)),
        "loss or its gradients": (state, with_record(batch, (0, 1, 13), 1e30)),  # whose square is too large
    }


# The rewards' states have a test below.
@pytest.mark.parametrize("source", [source for source in SOURCES if source != "states of the rewards"])
def test_a_bad_update_changes_nothing_and_tells_what_was_not_finite_first(source):
    update, _, good_batch = build()
    state, batch = bad_inputs()[source]
    skipped, metrics = update(state, batch, VERSION)
    assert metrics["bad_update"] and SOURCES[int(metrics["not_finite"])] == source
    assert_equal(copied(skipped), copied(state))
    expected, metrics = update(state, good_batch, VERSION)
    assert metrics["bad_update"] == (source in ("intrinsic rewards", "parameters"))
    assert metrics["not_finite"] == (SOURCES.index("parameters") if metrics["bad_update"] else -1)
    assert_equal(copied(update(skipped, good_batch, VERSION)[0]), copied(expected))


def test_gradients_alone_can_make_it_bad():
    def loss_fn(params, trajectory, intrinsic_rewards, targets):
        return jnp.sum(jnp.sqrt(params["w"])), {}

    optimizer, params = make_optimizer(LEARNER), {"w": jnp.zeros(3)}
    state = TrainState(params, optimizer.init(params), jnp.int32(0), jnp.zeros(2, jnp.uint32))
    skipped, metrics = make_update_fn(loss_fn, REWARDS.score, optimizer, unpack)(state, build()[2], VERSION)
    assert SOURCES[int(metrics["not_finite"])] == "loss or its gradients"
    assert_equal(copied(skipped), copied(state))


def test_a_bad_update_leaves_the_memory_it_overwrites_as_it_was():
    update, good, _ = build()
    state, batch = bad_inputs()["environment's rewards"]
    skipped, _ = jit_update(update)(jax.tree.map(jnp.array, state), batch, VERSION)
    assert_equal(copied(skipped), copied(good))


def test_metrics_are_finite_scalars_and_the_rewards_of_each_step():
    update, state, batch = build()
    _, metrics = update(state, batch, VERSION)
    rewards = {name: metrics.pop(name) for name in ("extrinsic_rewards", "intrinsic_rewards")}
    for name, mean in (("extrinsic_rewards", "extrinsic_reward_mean"), ("intrinsic_rewards", "intrinsic_reward_mean")):
        assert rewards[name].shape == (NUM_STEPS, BATCH)
        np.testing.assert_allclose(np.mean(rewards[name]), metrics[mean], rtol=1e-6)
    each = metrics.pop("each_intrinsic_reward")
    assert each.shape == (1, NUM_STEPS, BATCH) and np.array_equal(each[0], rewards["intrinsic_rewards"])
    assert {"loss", "grad_norm", "policy_loss", "value_loss", "exploration_loss", "policy_lag_mean"} <= set(metrics)
    assert all(np.shape(x) == () and np.isfinite(x) for x in metrics.values())


def test_reward_is_scored_with_its_state_and_features():
    update, state, batch = build()
    new_state, metrics = update(state, batch, VERSION)
    assert new_state.reward_state == 1
    assert metrics["intrinsic_reward_mean"] == 1
    _, metrics = update(state, batch._replace(features=({"rewards": np.float32(3)},)), VERSION)
    assert metrics["intrinsic_reward_mean"] == 3


def test_fixed_batch_is_learnt():
    update, state, batch = build()
    value_losses, losses = [], []
    for _ in range(40):
        state, metrics = update(state, batch, VERSION)
        value_losses.append(float(metrics["value_loss"]))
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.8 * losses[0]
    assert value_losses[-1] < 0.8 * value_losses[0]


PARAMS: Any = {"w": np.array([1, -2, 0.5], np.float32)}
GRADIENTS: Any = [
    {"w": np.array([3, -4, 0], np.float32)},
    {"w": np.array([0.3, 1, -0.2], np.float32)},
    {"w": np.array([-30, 40, 5], np.float32)},
]


@pytest.mark.parametrize("max_grad_norm", [4.0, 0.5, 0.0])
def test_optimizer_is_adam_behind_a_bound_on_the_norm(max_grad_norm):
    """Kingma & Ba (2015), written out, with constants other than the defaults."""
    config = LearnerConfig(
        learning_rate=0.01, adam_beta1=0.8, adam_beta2=0.95, adam_eps=0.1, max_grad_norm=max_grad_norm
    )
    optimizer = make_optimizer(config)
    state, first, second = optimizer.init(PARAMS), np.zeros(3), np.zeros(3)
    for step, gradients in enumerate(GRADIENTS, start=1):
        updates, state = optimizer.update(gradients, state, PARAMS)
        g = gradients["w"].astype(np.float64)
        if max_grad_norm:
            g *= min(1, max_grad_norm / np.linalg.norm(g))
        first, second = 0.8 * first + 0.2 * g, 0.95 * second + 0.05 * g**2
        unbiased = first / (1 - 0.8**step), second / (1 - 0.95**step)
        expected = -0.01 * unbiased[0] / (np.sqrt(unbiased[1]) + 0.1)
        (update,) = jax.tree.leaves(updates)
        np.testing.assert_allclose(update, expected, rtol=1e-4, atol=1e-8)


def test_update_applies_the_clipped_gradient():
    """With a huge epsilon Adam's first step is minus the gradient, so that its norm can be read off."""
    optimizer = make_optimizer(LearnerConfig(learning_rate=1e6, adam_eps=1e6, max_grad_norm=0.01))

    def loss_fn(params, trajectory, intrinsic_rewards, targets):
        return jnp.sum(params["w"] * GRADIENTS[0]["w"]), {}

    update = make_update_fn(loss_fn, REWARDS.score, optimizer, unpack)
    state = TrainState(PARAMS, optimizer.init(PARAMS), jnp.int32(0), jnp.zeros(2, jnp.uint32))
    new_state, metrics = update(state, build()[2], VERSION)
    np.testing.assert_allclose(new_state.params["w"] - PARAMS["w"], [-0.006, 0.008, 0], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(metrics["grad_norm"], 5, rtol=1e-5)  # as it was before clipping


def test_defaults_are_the_published_ones():
    config = LearnerConfig()
    adam = (config.learning_rate, config.adam_beta1, config.adam_beta2, config.adam_eps, config.max_grad_norm)
    assert adam == (1e-4, 0.9, 0.999, 1e-6, 4.0)


def test_a_reward_whose_state_is_no_number_any_more_does_not_get_it():
    """Its rewards of this batch are finite still: the state would be saved, and no update after it would be good."""

    class Spoilt(Reward):
        def score(self, state, trajectory, features, key):
            return RewardOutput(jnp.ones_like(trajectory.rewards), {**state, "moment": state["moment"] / 0.0})

    rewards = RewardSum([Term("spoilt", Spoilt(), 0.5)])
    optimizer = make_optimizer(LEARNER)
    loss_fn = make_loss_fn(POLICY.apply, LEARNER, RewardCoeffs(1.0, {"spoilt": 0.5}))
    _, state, batch = build()
    state = state._replace(reward_state={"moment": jnp.float32(0), "left alone": jnp.float32(np.nan)})
    update = jax.jit(make_update_fn(loss_fn, rewards.score, optimizer, unpack))
    skipped, metrics = update(state, batch, VERSION)
    assert metrics["bad_update"] and SOURCES[int(metrics["not_finite"])] == "states of the rewards"
    jax.tree.map(np.testing.assert_array_equal, skipped, state)


def test_rewards_of_another_shape_are_refused_by_name():
    class Short(Reward):
        def score(self, state, trajectory, features, key):
            return RewardOutput(trajectory.rewards[0], state)

    _, state, batch = build()
    with pytest.raises(UserError, match=r"--llm_reward_type short: scores \[4\], not \[5, 4\]"):
        RewardSum([Term("short", Short(), 1.0)]).score((), unpack(batch.payload, VERSION), ({},), state.key)
