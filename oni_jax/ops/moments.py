"""Running mean and variance, updated batch by batch (Chan, Golub & LeVeque 1979)."""

from typing import NamedTuple

import chex
import jax.numpy as jnp

from oni_jax.types import Array


class Moments(NamedTuple):
    """Running mean and variance of all values so far; elementwise those of arrays of one shape."""

    mean: Array  # [...] float32
    variance: Array  # [...] float32
    count: Array  # [] float32; number of values, or their weight


def initial_moments() -> Moments:
    """Returns the moments of no values: mean 0, variance 1, with a weight of 1e-4 values."""
    return Moments(mean=jnp.float32(0), variance=jnp.float32(1), count=jnp.float32(1e-4))


def no_moments(shape: tuple[int, ...] = ()) -> Moments:
    """Returns the moments of nothing, of this shape: of count 0, so that the first ones merged in replace them."""
    return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.float32(0))


def update_moments(moments: Moments, batch: Array) -> Moments:
    """Adds the values of `batch` (any shape, at least one value); its variance with Bessel's correction."""
    chex.assert_rank(tuple(moments), 0)
    chex.assert_type(batch, float)
    batch_variance = jnp.var(batch, ddof=1) if batch.size > 1 else jnp.float32(0)
    return merge_moments(moments, Moments(jnp.mean(batch), batch_variance, jnp.float32(batch.size)))


def merge_moments(moments: Moments, added: Moments) -> Moments:
    """Merges the moments of two sets of values of one shape, elementwise; not both of count 0."""
    chex.assert_equal_shape([moments.mean, moments.variance, added.mean, added.variance])
    total = moments.count + added.count
    delta = added.mean - moments.mean
    squares = (
        moments.variance * moments.count + added.variance * added.count + delta**2 * moments.count * added.count / total
    )
    return Moments(mean=moments.mean + delta * added.count / total, variance=squares / total, count=total)


def deviation(moments: Moments) -> Array:
    """Returns the standard deviation, not quite 0 where all values are equal."""
    return jnp.sqrt(moments.variance + 1e-8)


def normalise(x: Array, moments: Moments) -> Array:
    """Returns (x - mean) / deviation, in the shape of x [..., *shape of the moments]."""
    chex.assert_shape(x, (..., *moments.mean.shape))
    return (x - moments.mean) / deviation(moments)
