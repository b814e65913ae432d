"""Counts, clipping, mixing of rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.ops.moments import initial_moments
from oni_jax.ops.shaping import Carried, clip_reward, episodic_count_bonus, mix_rewards, published_shaping
from tests.golden import data_file


def test_reward_falls_with_the_count():
    rewards = episodic_count_bonus(jnp.asarray([1.0, 1.0, 2.0, 1.0]), jnp.asarray([1.0, 2.0, 3.0, 0.0]), 3.0)
    np.testing.assert_allclose(rewards, [1.0, 1 / 8, 2 / 27, 1.0], rtol=1e-6)  # count 0: no captions, no discount


def test_scaled_before_clipped():
    np.testing.assert_allclose(clip_reward(jnp.asarray([50.0, -500.0, 3.0]), 0.1, 10.0), [5.0, -10.0, 0.3], rtol=1e-6)


def test_mix():
    np.testing.assert_allclose(mix_rewards(jnp.asarray([10.0]), jnp.asarray([[2.0]]), 0.1, [0.4]), [1.8], rtol=1e-6)
    two = mix_rewards(jnp.asarray([10.0]), jnp.asarray([[2.0], [-1.0]]), 0.1, [0.4, 0.2])
    np.testing.assert_allclose(two, [1.6], rtol=1e-6)


@pytest.mark.parametrize("name", ["normal", "sparse", "zero"])
def test_bk_s_published_shaping_is_the_recorded_one(name):
    with np.load(data_file(f"bk_shaping_{name}.npz")) as recorded:
        phi, shaped, moments, divided, sums, constants = (
            recorded[key]
            for key in (
                "raw/intrinsic_rewards",  # five updates; the first row is the one carried over
                "shaped/shaped_rewards",
                "normalised/rms",
                "normalised/intrinsic_rewards",
                "filtered/intrinsic_rewards_per_step",
                "config/gamma_lambda_extcoef_clip_ent_vf_maxgrad",
            )
        )
    gamma, zeros = float(constants[0]), jnp.zeros(phi.shape[-1])
    carried, shape = Carried(zeros, zeros, initial_moments()), jax.jit(published_shaping, static_argnums=2)
    for update in range(len(phi)):
        np.testing.assert_allclose(carried.values, phi[update, 0], rtol=1e-4, atol=1e-6)
        found, carried = shape(carried, phi[update, 1:], gamma)
        np.testing.assert_allclose(found, shaped[update], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(carried.moments, moments[update], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(carried.values, divided[update, -1], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(carried.sums, sums[update, -1], rtol=1e-4, atol=1e-5)
