"""Precision of a network's computations.

Observations are cast to `Precision.dtype`, and the parameters of every product to its input's type. Parameters, sums
over a batch, the recurrent state, logits and values are float32 arrays; a kernel's gradient is a product in the type of
its operands, cast to float32.
"""

from typing import NamedTuple

import jax.numpy as jnp
from flax import linen as nn

from oni_jax.networks.initializers import Initialization
from oni_jax.types import Array


class Precision(NamedTuple):
    """Types that a network computes in."""

    dtype: jnp.dtype  # type of activations, and so of the operands of products
    float32_products: str  # `jax.default_matmul_precision` of products with float32 operands


# JAX's default lets an NVIDIA GPU round float32 operands to TF32.
PRECISIONS = {
    "float32": Precision(jnp.dtype(jnp.float32), "float32"),
    "tf32": Precision(jnp.dtype(jnp.float32), "tensorfloat32"),
    "bfloat16": Precision(jnp.dtype(jnp.bfloat16), "tensorfloat32"),
}


def add_bias(x: Array, bias: Array) -> Array:
    """Returns x [..., F] + bias [F] in x's type; computed in float32, so that the bias' gradient is summed in it."""
    return (x.astype(bias.dtype) + bias).astype(x.dtype)


class Dense(nn.Module):
    """A dense layer that computes in its input's type; the parameters `kernel` [D, F] and `bias` [F] are float32."""

    features: int
    initialization: Initialization

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., D] -> [..., F]."""
        kernel, bias = _dense_params(self, x.shape[-1])
        return add_bias(x @ kernel.astype(x.dtype), bias)


class DenseParams(nn.Module):
    """The parameters of a `Dense` layer, for a product that is computed elsewhere."""

    features: int
    initialization: Initialization

    @nn.compact
    def __call__(self, fan_in: int) -> tuple[Array, Array]:
        """Returns kernel [D, F] and bias [F] for inputs of size D."""
        return _dense_params(self, fan_in)


def _dense_params(layer: Dense | DenseParams, fan_in: int) -> tuple[Array, Array]:
    kernel = layer.param("kernel", layer.initialization.kernel, (fan_in, layer.features))
    return kernel, layer.param("bias", layer.initialization.bias(fan_in), (layer.features,))
