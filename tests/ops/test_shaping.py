"""Counts, clipping, mixing of rewards."""

import jax.numpy as jnp
import numpy as np

from oni_jax.ops.shaping import clip_reward, episodic_count_bonus, mix_rewards


def test_reward_falls_with_the_count():
    rewards = episodic_count_bonus(jnp.asarray([1.0, 1.0, 2.0, 1.0]), jnp.asarray([1.0, 2.0, 3.0, 0.0]), 3.0)
    np.testing.assert_allclose(rewards, [1.0, 1 / 8, 2 / 27, 1.0], rtol=1e-6)  # count 0: no captions, no discount


def test_scaled_before_clipped():
    np.testing.assert_allclose(clip_reward(jnp.asarray([50.0, -500.0, 3.0]), 0.1, 10.0), [5.0, -10.0, 0.3], rtol=1e-6)


def test_mix():
    np.testing.assert_allclose(mix_rewards(jnp.asarray([10.0]), jnp.asarray([[2.0]]), 0.1, [0.4]), [1.8], rtol=1e-6)
    two = mix_rewards(jnp.asarray([10.0]), jnp.asarray([[2.0], [-1.0]]), 0.1, [0.4, 0.2])
    np.testing.assert_allclose(two, [1.6], rtol=1e-6)
