"""PPO's losses against NumPy, written out sample by sample."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.ops import losses

RNG = np.random.default_rng(0)
SHAPE = (5, 4)
RATIOS = np.exp(RNG.normal(scale=0.4, size=SHAPE)).astype(np.float32)
ADVANTAGES = RNG.normal(size=SHAPE).astype(np.float32)
MASK = RNG.random(SHAPE) < 0.7


@pytest.mark.parametrize("mask", [MASK, np.ones(SHAPE, bool)])
def test_policy_loss(mask):
    gains = []
    for ratio, advantage in zip(RATIOS[mask], ADVANTAGES[mask], strict=True):
        gains.append(min(ratio * advantage, min(max(ratio, 1 / 1.2), 1.2) * advantage))
    loss = losses.ppo_policy_loss(jnp.asarray(RATIOS), jnp.asarray(ADVANTAGES), jnp.asarray(mask), 0.2)
    assert loss == pytest.approx(-np.mean(gains), rel=1e-5)


def test_value_loss():
    values, old, targets = (RNG.normal(size=SHAPE).astype(np.float32) for _ in range(3))
    clipped = old + np.clip(values - old, -0.5, 0.5)
    expected = np.maximum((values - targets) ** 2, (clipped - targets) ** 2)[MASK].mean()
    values, old, targets, mask = map(jnp.asarray, (values, old, targets, MASK))
    loss = losses.clipped_value_loss(values, old, targets, mask, 0.5)
    assert loss == pytest.approx(expected, rel=1e-5)


def test_a_mask_of_nothing_gives_zero_and_no_nan():
    nothing = jnp.zeros(SHAPE, bool)
    value, gradient = jax.value_and_grad(lambda x: losses.masked_mean(x, nothing))(jnp.asarray(ADVANTAGES))
    assert value == 0
    assert not np.any(gradient)


def test_masked_samples_carry_no_gradient():
    gradient = jax.grad(lambda r: losses.ppo_policy_loss(r, jnp.asarray(ADVANTAGES), jnp.asarray(MASK), 0.2))(
        jnp.asarray(RATIOS)
    )
    assert not np.any(gradient[~MASK])
    assert np.any(gradient[MASK])


def test_advantages_have_mean_zero_and_sample_deviation_one():
    normalised = losses.normalise_advantages(jnp.asarray(ADVANTAGES))
    assert np.mean(normalised) == pytest.approx(0, abs=1e-6)
    assert np.std(normalised, ddof=1) == pytest.approx(1, rel=1e-5)
    equal = losses.normalise_advantages(jnp.full(SHAPE, 3.0))
    np.testing.assert_allclose(equal, 0, atol=1e-6)  # divided by 1e-3, not by 0


def test_entropy_and_divergence():
    logits = RNG.normal(size=(3, 6)).astype(np.float32)
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(losses.entropy(jnp.asarray(logits)), -(probs * np.log(probs)).sum(-1), rtol=1e-5)
    there = (probs * np.log(probs * 6)).sum(-1)
    back = (np.log(1 / 6 / probs) / 6).sum(-1)
    np.testing.assert_allclose(
        losses.symmetric_kl_to_uniform(jnp.asarray(logits)), (there + back) / 2, rtol=1e-4, atol=1e-6
    )


def test_action_log_probs():
    logits = jnp.asarray(RNG.normal(size=(2, 3, 6)), jnp.float32)
    actions = jnp.asarray([[0, 5, 2], [1, 1, 3]])
    log_probs = losses.action_log_probs(logits, actions)
    assert log_probs[0, 1] == pytest.approx(jax.nn.log_softmax(logits[0, 1])[5])
