"""In what precision a network computes.

Its observations enter in the type of `Precision.dtype`, and every product takes its parameters in the type of what
they meet. Parameters, what sums up over a batch, the recurrent state, logits and values are float32 arrays; a kernel's
gradient is a product in the type of its operands, handed on as float32.
"""

from typing import NamedTuple

import jax.numpy as jnp
from flax import linen as nn

from oni_jax.networks.initializers import Initialization
from oni_jax.types import Array


class Precision(NamedTuple):
    """How a network computes."""

    dtype: jnp.dtype  # of activations, and so of the operands of products
    float32_products: str  # what `jax.default_matmul_precision` makes of those whose operands are float32


# JAX's own default lets an NVIDIA GPU round float32 operands to TF32.
PRECISIONS = {
    "float32": Precision(jnp.dtype(jnp.float32), "float32"),
    "tf32": Precision(jnp.dtype(jnp.float32), "tensorfloat32"),
    "bfloat16": Precision(jnp.dtype(jnp.bfloat16), "tensorfloat32"),
}


def add_bias(x: Array, bias: Array) -> Array:
    """x [..., F] + bias [F], in x's type; in float32 on the way, so that the bias' gradient is summed up in it."""
    return (x.astype(bias.dtype) + bias).astype(x.dtype)


class Dense(nn.Module):
    """A dense layer that computes in its input's type; the parameters `kernel` [D, F] and `bias` [F] are float32."""

    features: int
    initialization: Initialization

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., D] -> [..., F]."""
        kernel = self.param("kernel", self.initialization.kernel, (x.shape[-1], self.features))
        bias = self.param("bias", self.initialization.bias(x.shape[-1]), (self.features,))
        return add_bias(x @ kernel.astype(x.dtype), bias)
