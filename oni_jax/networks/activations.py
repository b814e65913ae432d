"""Activations by name."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from oni_jax.types import Array


@jax.custom_jvp
def elu(x: Array) -> Array:
    """x where positive, else exp(x) - 1. The derivative is computed from the value: nothing else is kept."""
    below = jnp.exp(jnp.minimum(x, 0).astype(jnp.float32)) - 1  # few bits would lose the difference
    return jnp.where(x > 0, x, below.astype(x.dtype))


@elu.defjvp
def _elu_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    y = elu(*primals)
    return y, tangents[0] * (jnp.minimum(y, 0) + 1)


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {"elu": elu, "relu": nn.relu, "tanh": nn.tanh}
