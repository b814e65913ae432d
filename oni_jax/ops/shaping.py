"""Reward shaping: episodic count bonus, clipping and weighted sum."""

from collections.abc import Sequence

import chex
import jax.numpy as jnp

from oni_jax.types import Array


def episodic_count_bonus(rewards: Array, counts: Array, exponent: float) -> Array:
    """Divides captions' rewards by counts^exponent; counts: occurrences in the episode so far. Equal shapes."""
    chex.assert_equal_shape([rewards, counts])
    return rewards * jnp.maximum(1.0, counts) ** -exponent


def clip_reward(rewards: Array, scale: float, bound: float) -> Array:
    """Returns clip(scale * rewards, +-bound)."""
    chex.assert_type(rewards, float)
    return jnp.clip(scale * rewards, -bound, bound)


def mix_rewards(extrinsic: Array, intrinsic: Array, extrinsic_coeff: float, intrinsic_coeffs: Sequence[float]) -> Array:
    """Weighted sum of extrinsic [...] and K intrinsic rewards [K, ...]."""
    chex.assert_shape(intrinsic, (len(intrinsic_coeffs), *extrinsic.shape))
    return extrinsic_coeff * extrinsic + sum(coeff * rewards for coeff, rewards in zip(intrinsic_coeffs, intrinsic))
