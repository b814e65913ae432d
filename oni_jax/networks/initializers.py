"""Initial weights of layers."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from flax import linen as nn

Initializer = Callable[..., jax.Array]  # (key, shape, dtype) -> array


def uniform(fan: int) -> Initializer:
    """Returns the initialiser uniform in +-1/sqrt(fan)."""
    bound = fan**-0.5
    return lambda key, shape, dtype=float: jax.random.uniform(key, shape, dtype, -bound, bound)


def summed(initializer: Initializer, count: int) -> Initializer:
    """Returns an initialiser of vectors: two draws summed in the first `count` entries, one draw in the others."""

    def draw(key: jax.Array, shape: tuple[int, ...], dtype: type = float) -> jax.Array:
        first, second = jax.random.split(key)
        return initializer(first, shape, dtype).at[:count].add(initializer(second, (count,), dtype))

    return draw


def _zeros(fan_in: int) -> Initializer:
    return nn.initializers.zeros


class Initialization(NamedTuple):
    """Initialisers of a dense or convolutional layer."""

    kernel: Initializer
    bias: Callable[[int], Initializer] = _zeros  # fan in of the layer -> initializer


ORTHOGONAL = Initialization(nn.initializers.orthogonal())
XAVIER_UNIFORM = Initialization(nn.initializers.xavier_uniform())
# Kernel and bias uniform in +-1/sqrt(fan in): PyTorch's default.
FAN_IN_UNIFORM = Initialization(nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform"), uniform)


def scaled_orthogonal(scale: float) -> Initialization:
    """Returns orthogonal kernels times `scale`, and zero biases."""
    return Initialization(nn.initializers.orthogonal(scale))


# `--policy_initialization` -> initializers
POLICY_INITIALIZATIONS = {"orthogonal": ORTHOGONAL, "xavier_uniform": XAVIER_UNIFORM}
