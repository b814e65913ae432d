"""How rewards are discounted by counts and mixed."""

import chex
import jax.numpy as jnp

from oni_jax.types import Array


def count_discount(rewards: Array, counts: Array, exponent: float) -> Array:
    """Rewards of captions seen `counts` times in their episode, this time included. Equal shapes."""
    chex.assert_equal_shape([rewards, counts])
    return rewards * jnp.maximum(1.0, counts) ** -exponent


def clip_reward(rewards: Array, scale: float, bound: float) -> Array:
    """clip(scale * rewards, +-bound)."""
    chex.assert_type(rewards, float)
    return jnp.clip(scale * rewards, -bound, bound)


def mix_rewards(extrinsic: Array, intrinsic: Array, extrinsic_coeff: float, intrinsic_coeff: float) -> Array:
    """Weighted sum. Equal shapes."""
    chex.assert_equal_shape([extrinsic, intrinsic])
    return extrinsic_coeff * extrinsic + intrinsic_coeff * intrinsic
