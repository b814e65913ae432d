"""Embeddings of observations that know what an action changes: they are learnt by predicting the actions."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from oni_jax.networks.distillation import Embedding
from oni_jax.networks.initializers import Initialization
from oni_jax.networks.precision import Dense
from oni_jax.types import Array, PyTree


class InverseDynamics(nn.Module):
    """Predicts the action between two observations from their embeddings (Pathak et al. 2017, arXiv 1705.05363)."""

    encoder: nn.Module  # {name: [N, ...]} -> [N, D]
    hidden_size: int
    output_dim: int  # size of an embedding
    num_actions: int
    initialization: Initialization

    def setup(self) -> None:
        self.embedding = Embedding(self.encoder, (), self.output_dim, self.initialization)
        self.hidden = Dense(self.hidden_size, self.initialization)
        self.output = Dense(self.num_actions, self.initialization)

    def embed(self, observations: PyTree) -> Array:
        """Observations {name: [N, ...]} -> [N, output_dim] float32."""
        return self.embedding(observations)

    def __call__(self, before: PyTree, after: PyTree) -> Array:
        """Observations before and after a step -> logits of its action [N, A] float32."""
        with jax.default_matmul_precision("float32"):
            x = jnp.concatenate([self.embed(before), self.embed(after)], axis=-1)
            return self.output(nn.relu(self.hidden(x)))
