"""The classification reward model: predicts whether a message is helpful."""

import chex
import jax
import jax.numpy as jnp
from flax import linen as nn

from oni_jax.networks.initializers import FAN_IN_UNIFORM
from oni_jax.networks.messages import MessageNetwork
from oni_jax.networks.precision import PRECISIONS, Dense
from oni_jax.types import Array

NUM_LABELS = 2
DROPOUT_RATE = 0.1


class MessageClassifier(nn.Module):
    """The message network, dense layers with ReLU and dropout, logits of not helpful and helpful. In true float32."""

    model: str = "lt_cnn"
    hidden_sizes: tuple[int, ...] = (512, 512)

    def setup(self) -> None:
        self.message = MessageNetwork(self.model, FAN_IN_UNIFORM)
        self.dense = [Dense(size, FAN_IN_UNIFORM) for size in self.hidden_sizes]
        self.logits = Dense(NUM_LABELS, FAN_IN_UNIFORM)

    def __call__(self, messages: Array) -> Array:
        """[N, M] uint8, padding optional -> logits [N, 2]."""
        return self.classify(self.read(messages))

    def read(self, messages: Array) -> Array:
        """Computes the features, the costly part: messages [N, M] uint8 -> [N, D]."""
        with jax.default_matmul_precision(PRECISIONS["float32"].float32_products):
            return self.message(messages)

    def classify(self, x: Array, dropout: tuple[Array, ...] | None = None) -> Array:
        """Classifies features [N, D] -> logits [N, 2]. dropout: masks of N rows, in training."""
        with jax.default_matmul_precision(PRECISIONS["float32"].float32_products):
            for i, layer in enumerate(self.dense):
                x = nn.relu(layer(x))
                x = x if dropout is None else x * dropout[i]
            return self.logits(x)

    def dropout_masks(self, key: Array, count: int) -> tuple[Array, ...]:
        """Draws factors 0 or 1 / (1 - rate), [count, size] for each hidden layer."""
        keep = 1 - DROPOUT_RATE
        keys = jax.random.split(key, len(self.hidden_sizes))
        kept = [jax.random.bernoulli(k, keep, (count, size)) for k, size in zip(keys, self.hidden_sizes)]
        return tuple(jnp.where(mask, 1 / keep, 0.0) for mask in kept)


def helpful_probabilities(logits: Array) -> Array:
    """Returns P(helpful) of logits [..., 2]."""
    chex.assert_axis_dimension(logits, -1, NUM_LABELS)
    return jax.nn.softmax(logits)[..., 1]
