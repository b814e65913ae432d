"""The loss: old samples, ends and cuts of episodes, both bootstraps, the exploration terms, mixed rewards."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.learner.loss import LossInputs, RewardCoeffs, appo_loss, make_loss_fn, vtrace_targets
from oni_jax.networks.policy import PolicyOutput
from oni_jax.settings.learning import LearnerConfig
from oni_jax.types import Trajectory

NUM_STEPS, BATCH, ACTIONS = 6, 3, 4
LEARNER = LearnerConfig(gamma=0.9, max_policy_lag=10)
NO_END = np.zeros((NUM_STEPS, BATCH), bool)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


LOGITS, VALUES = normal(0, NUM_STEPS + 1, BATCH, ACTIONS), normal(1, NUM_STEPS + 1, BATCH)


def make_trajectory(**changes):
    fields = dict(
        observations={},
        is_first=np.zeros((NUM_STEPS + 1, BATCH), bool),
        before_counts=np.ones((NUM_STEPS, BATCH), np.float32),
        caused_counts=np.ones((NUM_STEPS, BATCH), np.float32),
        actions=np.random.default_rng(2).integers(ACTIONS, size=(NUM_STEPS, BATCH), dtype=np.int32),
        rewards=normal(3, NUM_STEPS, BATCH),
        terminations=NO_END,
        truncations=NO_END,
        truncation_values=np.zeros((NUM_STEPS, BATCH), np.float32),
        final_observations={},
        behaviour_logits=LOGITS[:-1] + 0.1 * normal(4, NUM_STEPS, BATCH, ACTIONS),
        values=VALUES[:-1] + 0.1 * normal(5, NUM_STEPS, BATCH),
        policy_lags=np.zeros((NUM_STEPS, BATCH), np.int32),
        initial_core_state=(),
    )
    return Trajectory(**{**fields, **changes})  # type: ignore


def policy_apply(params, observations, core_state, is_first):
    """A policy whose parameters are its outputs."""
    return PolicyOutput(params["logits"], params["values"]), core_state


PARAMS = {"logits": LOGITS, "values": VALUES}
NOTHING = np.zeros((NUM_STEPS, BATCH), np.float32)


def run(trajectory, learner=LEARNER, coeffs=RewardCoeffs(1.0, {"reward": 0.0}), intrinsic=NOTHING, params=PARAMS):  # noqa: B008
    """(loss, metrics), gradients."""
    loss_fn = make_loss_fn(policy_apply, learner, coeffs)
    intrinsic = intrinsic if intrinsic.ndim == 3 else intrinsic[None]
    return jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(params, trajectory, intrinsic)


def inputs(**changes):
    fields = dict(
        actions=make_trajectory().actions,
        behaviour_log_probs=-np.ones((NUM_STEPS, BATCH), np.float32),
        old_values=VALUES[:-1],
        rewards=normal(3, NUM_STEPS, BATCH),
        terminations=NO_END,
        truncations=NO_END,
        truncation_values=normal(6, NUM_STEPS, BATCH),
        mask=~NO_END,
    )
    return LossInputs(**{**fields, **changes})


def targets(batch, learner=LEARNER, values=VALUES):
    return vtrace_targets(values[:-1], values[-1], np.ones((NUM_STEPS, BATCH), np.float32), batch, learner)


def at(*indices):
    mask = NO_END.copy()
    for index in indices:
        mask[index] = True
    return mask


class TestLag:
    """Samples that are too old."""

    lags = np.where(at((1, 0), (4, 2)), LEARNER.max_policy_lag, LEARNER.max_policy_lag - 1).astype(np.int32)
    old = lags == LEARNER.max_policy_lag

    def test_old_steps_have_no_gradient(self):
        _, gradients = run(make_trajectory(policy_lags=self.lags))
        for gradient in (gradients["logits"][:-1].any(-1), gradients["values"][:-1] != 0):
            assert not np.any(gradient & self.old)
        assert np.all(gradients["logits"][:-1].any(-1) | self.old)
        _, gradients = run(make_trajectory())
        assert np.all(gradients["logits"][:-1].any(-1))

    @pytest.mark.parametrize("exploration_loss", ["entropy", "symmetric_kl"])
    def test_losses_are_means_over_the_others(self, exploration_loss):
        learner = dataclasses.replace(LEARNER, exploration_loss=exploration_loss)
        logits = LOGITS.copy()
        logits[:-1][self.old] = 5 * normal(7, 2, ACTIONS)
        mask = ~self.old
        (_, metrics), _ = run(make_trajectory(policy_lags=self.lags), learner, params={**PARAMS, "logits": logits})
        log_probs = np.asarray(jax.nn.log_softmax(logits[:-1]))[mask]
        entropy = -(np.exp(log_probs) * log_probs).sum(-1).mean()
        np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-5)
        divergence = 0.5 * ((np.exp(log_probs) - 1 / ACTIONS) * log_probs).sum(-1).mean()
        expected = {"entropy": -entropy, "symmetric_kl": divergence}[exploration_loss]
        np.testing.assert_allclose(metrics["exploration_loss"], learner.exploration_loss_coeff * expected, rtol=1e-4)
        np.testing.assert_allclose(metrics["masked_fraction"], 2 / NO_END.size, rtol=1e-5)

    def test_old_steps_take_part_in_the_advantages_mean_and_deviation(self):
        """The policy loss of the others, their advantages normalised over all."""
        trajectory = make_trajectory(policy_lags=self.lags)
        log_probs = np.log(np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True))[:-1]
        behaviour = np.asarray(jax.nn.log_softmax(trajectory.behaviour_logits))
        actions = trajectory.actions[..., None]
        batch = inputs(
            behaviour_log_probs=np.take_along_axis(behaviour, actions, -1)[..., 0],
            old_values=trajectory.values,
            mask=~self.old,
        )
        _, (metrics, found) = appo_loss(LOGITS[:-1], VALUES[:-1], VALUES[-1], batch, LEARNER)
        ratios = np.exp(np.take_along_axis(log_probs - behaviour, actions, -1)[..., 0])
        raw = np.asarray(found.pg_advantages)
        advantages = (raw - raw.mean()) / raw.std(ddof=1)
        e = LEARNER.ppo_clip_ratio
        gains = np.minimum(ratios * advantages, np.clip(ratios, 1 / (1 + e), 1 + e) * advantages)
        np.testing.assert_allclose(metrics["policy_loss"], -gains[~self.old].mean(), rtol=1e-4)
        others = raw[~self.old]
        assert abs(others.mean() - raw.mean()) > 0.01  # so that leaving them out would show
        squares = np.maximum(
            (VALUES[:-1] - found.vs) ** 2,
            (batch.old_values + np.clip(VALUES[:-1] - batch.old_values, -1, 1) - found.vs) ** 2,
        )
        np.testing.assert_allclose(metrics["value_loss"], 0.5 * squares[~self.old].mean(), rtol=1e-4)

    def test_batch_of_old_steps_alone_is_no_nan(self):
        (loss, _), gradients = run(make_trajectory(policy_lags=np.full_like(self.lags, 99)))
        assert loss == 0 and not any(np.any(x) for x in gradients.values())


class TestEnds:
    """Values at the ends of steps."""

    def test_a_cut_is_worth_its_final_observation(self):
        batch = inputs(truncations=at((2, 1)))
        vs = np.asarray(targets(batch).vs)
        assert vs[2, 1] == pytest.approx(batch.rewards[2, 1] + 0.9 * batch.truncation_values[2, 1], rel=1e-4)
        higher = targets(batch._replace(truncation_values=batch.truncation_values + 1))
        np.testing.assert_allclose(higher.vs[:3, 1] - vs[:3, 1], [0.9**3, 0.9**2, 0.9], rtol=1e-4)
        np.testing.assert_array_equal(np.delete(higher.vs, 1, 1), np.delete(vs, 1, 1))
        np.testing.assert_array_equal(higher.vs[3:], vs[3:])

    def test_a_death_is_worth_nothing_more(self):
        batch = inputs(terminations=at((2, 1)))
        vs = np.asarray(targets(batch).vs)
        assert vs[2, 1] == pytest.approx(batch.rewards[2, 1], rel=1e-4)
        other = targets(batch._replace(truncation_values=batch.truncation_values + 1))
        np.testing.assert_array_equal(other.vs, vs)

    def test_death_at_the_step_limit_is_a_death(self):
        dead = inputs(terminations=at((2, 1)))
        both = dead._replace(truncations=at((2, 1)))
        np.testing.assert_array_equal(targets(both).vs, targets(dead).vs)

    def test_published_takes_a_cut_for_a_death(self):
        learner = dataclasses.replace(LEARNER, bootstrap="published")
        cut, dead = inputs(truncations=at((2, 1))), inputs(terminations=at((2, 1)))
        for one, other in zip(targets(cut, learner), targets(dead, learner)):
            np.testing.assert_array_equal(one, other)


class TestBootstrap:
    """The value after the last step."""

    def test_value_is_that_of_the_next_observation(self):
        batch = inputs()
        vs = targets(batch).vs
        np.testing.assert_allclose(vs[-1], batch.rewards[-1] + 0.9 * VALUES[-1], rtol=1e-4, atol=1e-5)

    def test_published_makes_the_last_advantage_zero_and_looks_at_no_next_value(self):
        learner = dataclasses.replace(LEARNER, bootstrap="published")
        found = targets(inputs(), learner)
        np.testing.assert_allclose(found.pg_advantages[-1], 0, atol=1e-5)
        np.testing.assert_allclose(found.vs[-1], VALUES[-2], rtol=1e-4, atol=1e-5)
        higher = np.concatenate([VALUES[:-1], VALUES[-1:] + 1])
        np.testing.assert_array_equal(targets(inputs(), learner, higher).vs, found.vs)

    @pytest.mark.parametrize("bootstrap", ["value", "published"])
    def test_targets_have_no_gradient(self, bootstrap):
        """Only values that are learnt have one: not the one after the last step."""
        _, gradients = run(make_trajectory(), dataclasses.replace(LEARNER, bootstrap=bootstrap))
        assert not np.any(gradients["values"][-1])
        assert not np.any(gradients["logits"][-1])


class TestExploration:
    def test_symmetric_kl(self):
        learner = dataclasses.replace(LEARNER, exploration_loss="symmetric_kl", exploration_loss_coeff=0.5)
        p, u = np.exp(LOGITS[:-1]) / np.exp(LOGITS[:-1]).sum(-1, keepdims=True), 1 / ACTIONS
        expected = 0.5 * ((p * np.log(p / u)).sum(-1) + (u * np.log(u / p)).sum(-1)).mean()
        (_, metrics), _ = run(make_trajectory(), learner)
        np.testing.assert_allclose(metrics["exploration_loss"], 0.5 * expected, rtol=1e-4)

    def test_symmetric_kl_is_bounded(self):
        learner = dataclasses.replace(LEARNER, exploration_loss="symmetric_kl", exploration_loss_coeff=1.0)
        (_, metrics), _ = run(make_trajectory(), learner, params={**PARAMS, "logits": 200 * LOGITS})
        assert metrics["exploration_loss"] == 30

    @pytest.mark.parametrize("exploration_loss", ["entropy", "symmetric_kl"])
    def test_both_pull_towards_uniform(self, exploration_loss):
        learner = dataclasses.replace(LEARNER, exploration_loss=exploration_loss, exploration_loss_coeff=100.0)
        _, gradients = run(make_trajectory(), learner)
        most = LOGITS[:-1].argmax(-1)[..., None]
        assert (np.take_along_axis(np.asarray(gradients["logits"][:-1]), most, -1) > 0).all()


class TestRewards:
    coeffs = RewardCoeffs(0.1, {"one": 0.4, "two": 0.2})

    def test_mixture(self):
        learner = dataclasses.replace(LEARNER, reward_scale=2.0, reward_clip=1.0)
        trajectory, intrinsic = make_trajectory(), normal(9, 2, NUM_STEPS, BATCH)
        mixed = 0.1 * np.clip(2 * trajectory.rewards, -1, 1) + 0.4 * intrinsic[0] + 0.2 * intrinsic[1]
        (loss, metrics), gradients = run(trajectory, learner, self.coeffs, intrinsic)
        assert metrics["intrinsic_reward_mean/two"] == pytest.approx(intrinsic[1].mean(), rel=1e-4)
        np.testing.assert_allclose(metrics["reward_mean"], mixed.mean(), rtol=1e-4, atol=1e-6)
        plain = make_trajectory(rewards=mixed)
        (expected, _), expected_gradients = run(plain)
        np.testing.assert_allclose(loss, expected, rtol=1e-4)
        np.testing.assert_allclose(gradients["logits"], expected_gradients["logits"], rtol=1e-3, atol=1e-6)

    def test_counted_rewards(self):
        intrinsic = np.where(at((0, 0), (3, 1)), 1.0, 0.0).astype(np.float32)
        both = np.stack([intrinsic, 2 * intrinsic])  # a step that two pay for counts once
        (_, metrics), _ = run(make_trajectory(), LEARNER, self.coeffs, both)
        assert metrics["num_rewarded_steps"] == 2

    def test_extreme_ratios_are_bounded(self):
        trajectory = make_trajectory(behaviour_logits=30 * normal(10, NUM_STEPS, BATCH, ACTIONS))
        (loss, metrics), _ = run(trajectory, params={**PARAMS, "logits": 30 * LOGITS})
        np.testing.assert_allclose((metrics["ratio_min"], metrics["ratio_max"]), (0.05, 20), rtol=1e-5)
        assert jnp.isfinite(loss)
