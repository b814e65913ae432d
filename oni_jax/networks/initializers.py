"""Initial weights beyond flax's own."""

from collections.abc import Callable

import jax
from flax import linen as nn


def uniform(fan: int) -> Callable:
    """Uniform in +-1/sqrt(fan)."""
    bound = fan**-0.5
    return lambda key, shape, dtype=float: jax.random.uniform(key, shape, dtype, -bound, bound)


def named(name: str) -> Callable:
    """Of dense and 2-D convolution kernels: `orthogonal` (gain 1) or `xavier_uniform`."""
    return {"orthogonal": nn.initializers.orthogonal(), "xavier_uniform": nn.initializers.xavier_uniform()}[name]
