"""Encoder of NetHack for machines without an accelerator: embedded characters in place of an image of them."""

from collections.abc import Mapping

import jax.numpy as jnp
from flax import linen as nn

from oni_jax.networks.embedding import embedded_product
from oni_jax.networks.encoder import Encoder
from oni_jax.networks.precision import DenseParams, add_bias
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import Array, EnvSpec

EMBEDDING_SIZE = 16  # embedding of a cell
NUM_CHARS, NUM_COLORS = 128, 32  # ASCII; a terminal's colours, and the same inverse
HEAD_SIZE = 64  # layers over the statistics and the message


class EmbeddedCropEncoder(Encoder):
    """Encoder of the characters and colours around the hero, each embedded, and of statistics and a message.

    At `--hidden_size 128` a sixth of the operations of nle_rgbcrop_encoder; of 1,024 rows, by look-up, a fortieth.
    """

    @nn.compact
    def __call__(self, observations: Mapping[str, Array]) -> Array:
        """`chars`, `colors` [N, 12, 12], `vector_obs` [N, D], `message` [N, M] uint8 -> [N, hidden_size + 128 + D]."""
        statistics = observations["vector_obs"].astype(self.dtype)
        parts = [
            self._window(observations["chars"], observations["colors"]),
            self.dense(statistics, HEAD_SIZE, "vector"),
            statistics,
            self.dense(self.scaled(observations["message"]), HEAD_SIZE, "message"),
        ]
        return jnp.concatenate(parts, axis=-1)

    def _window(self, chars: Array, colors: Array) -> Array:
        """-> [N, hidden_size]."""
        parts = []
        for name, ids, num_ids in (("char", chars, NUM_CHARS), ("color", colors, NUM_COLORS)):
            embedding = self.param(f"{name}_embedding", nn.initializers.normal(0.5**0.5), (num_ids, EMBEDDING_SIZE))
            parts.append((jnp.minimum(ids.reshape(len(ids), -1).astype(jnp.int32), num_ids - 1), embedding))
        params = DenseParams(self.network.hidden_size, self.initialization, name="window_0")
        kernel, bias = params(chars.shape[1] * chars.shape[2] * EMBEDDING_SIZE)
        x = self.activation(add_bias(embedded_product(parts, kernel, self.dtype), bias))
        return self.dense(x, self.network.hidden_size, "window_1")


def make_embedded_encoder(network: NetworkConfig, spec: EnvSpec) -> EmbeddedCropEncoder:
    return EmbeddedCropEncoder(network)
