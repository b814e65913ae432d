"""Running mean and variance, updated batch by batch (Chan, Golub & LeVeque 1979)."""

from typing import NamedTuple

import chex
import jax.numpy as jnp

from oni_jax.types import Array


class Moments(NamedTuple):
    """Running mean and variance of all values so far."""

    mean: Array  # [] float32
    variance: Array  # [] float32
    count: Array  # [] float32; number of values


def initial_moments() -> Moments:
    """Returns the moments of no values: mean 0, variance 1, with a weight of 1e-4 values."""
    return Moments(mean=jnp.float32(0), variance=jnp.float32(1), count=jnp.float32(1e-4))


def update_moments(moments: Moments, batch: Array) -> Moments:
    """Adds the values of `batch` (any shape, at least one value); its variance with Bessel's correction."""
    chex.assert_rank(tuple(moments), 0)
    chex.assert_type(batch, float)
    size = batch.size
    total = moments.count + size
    batch_variance = jnp.var(batch, ddof=1) if size > 1 else jnp.float32(0)
    delta = jnp.mean(batch) - moments.mean
    squares = moments.variance * moments.count + batch_variance * size + delta**2 * moments.count * size / total
    return Moments(mean=moments.mean + delta * size / total, variance=squares / total, count=total)


def normalise(x: Array, moments: Moments) -> Array:
    """Returns (x - mean) / deviation, in the shape of x."""
    chex.assert_rank(tuple(moments), 0)
    return (x - moments.mean) / jnp.sqrt(moments.variance + 1e-8)
