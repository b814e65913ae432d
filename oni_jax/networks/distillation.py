"""Networks of random network distillation: an encoder, and dense layers."""

import jax
from flax import linen as nn

from oni_jax.networks.initializers import Initialization
from oni_jax.networks.precision import Dense
from oni_jax.types import Array, PyTree


class Embedding(nn.Module):
    """Embedding of observations by an encoder, dense layers with ReLU, and a last one without."""

    encoder: nn.Module  # {name: [N, ...]} -> [N, D]
    hidden_sizes: tuple[int, ...]
    output_dim: int
    initialization: Initialization

    @nn.compact
    def __call__(self, observations: PyTree) -> Array:
        """Observations {name: [N, ...]} -> [N, output_dim] float32."""
        with jax.default_matmul_precision("float32"):
            x = self.encoder(observations)
            for i, size in enumerate(self.hidden_sizes):
                x = nn.relu(Dense(size, self.initialization, name=f"hidden_{i}")(x))
            return Dense(self.output_dim, self.initialization, name="output")(x)
