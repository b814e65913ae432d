"""Reward shaping: episodic count bonus, clipping and weighted sum; BK's published shaping."""

from collections.abc import Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from oni_jax.ops.moments import Moments, merge_moments
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


class Carried(NamedTuple):
    """State of BK's published shaping between two rollouts of B environments."""

    values: Array  # [B] float32; the last rollout's last row, as it was divided
    sums: Array  # [B] float32; discounted sums
    moments: Moments  # moments of all sums so far


def published_shaping(carried: Carried, phi: Array, gamma: float) -> tuple[Array, Carried]:
    """Returns F [T, B] of a rollout's potentials [T, B], as BK's published code computes it, and the new state.

    e(t)    = gamma e(t-1) + phi(t)               never reset; the row before the rollout goes in for a second time
    phi'(t) = phi(t) / deviation of all e so far  the row before the rollout is divided for a second time
    F(t)    = gamma phi'(t) - phi'(t-1)           paid with step t, across the ends of episodes
    """
    chex.assert_rank(phi, 2)
    rows = jnp.concatenate([carried.values[None], phi])

    def step(total: Array, now: Array) -> tuple[Array, Array]:
        total = gamma * total + now
        return total, total

    last, sums = jax.lax.scan(step, carried.sums, rows)
    moments = merge_moments(carried.moments, Moments(jnp.mean(sums), jnp.var(sums), jnp.float32(sums.size)))
    divided = rows / jnp.sqrt(moments.variance)
    return gamma * divided[1:] - divided[:-1], Carried(divided[-1], last, moments)
