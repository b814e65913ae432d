"""The Preference Transformer: values of the steps of a segment, from which of two segments is preferred.

Sources: Kim et al. 2023 (arXiv 2303.00957); in the form of BK (arXiv 2407.03964).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from oni_jax.networks.encoder import Encoder
from oni_jax.networks.initializers import FAN_IN_UNIFORM, XAVIER_UNIFORM, Initialization
from oni_jax.networks.precision import PRECISIONS, Dense
from oni_jax.types import Array

_FAN_IN_NO_BIAS = Initialization(FAN_IN_UNIFORM.kernel)
_EPS = 1e-5  # epsilon of layer normalisation
_PRECISION = PRECISIONS["float32"].float32_products


class Values(NamedTuple):
    """Outputs for N segments of L steps."""

    values: Array  # [N, L] float32; of each step
    weights: Array  # [N, L, L]; row i: of the steps up to i
    hidden: Array  # [N, L, W]

    def score(self) -> Array:
        """Returns [N], the logit of the segments: that of a pair is the difference."""
        return jnp.einsum("nij,nj->n", self.weights, self.values)


class _Attention(nn.Module):
    """Attention with one head."""

    @nn.compact
    def __call__(self, queries: Array, memory: Array, mask: np.ndarray) -> Array:
        """Queries [N, Q, W], memory [N, M, W], mask [Q, M] bool -> [N, Q, W]."""
        width = queries.shape[-1]
        kernel = self.param("kernel", XAVIER_UNIFORM.kernel, (width, 3 * width))
        bias = self.param("bias", nn.initializers.zeros, (3 * width,))
        queries = queries @ kernel[:, :width] + bias[:width]
        keys, values = jnp.split(memory @ kernel[:, width:] + bias[width:], 2, axis=-1)
        weights = _masked_softmax(jnp.einsum("nqw,nmw->nqm", queries, keys) / width**0.5, mask)
        return Dense(width, _FAN_IN_NO_BIAS, name="out")(weights @ values)


class PreferenceTransformer(nn.Module):
    """Values steps (state, action, time) by the steps up to each: one decoder layer over s1, a1, ..., sL, aL.

    The value of a step does not depend on the state after it.

    Attributes:
        encoder: of states.
        num_actions: actions; NO_ACTION (-1), and any other that is none of them, is embedded as zeros.
        width: W.
        feed_forward: width of the hidden layer after attention.
        max_time: steps of an episode that have an embedding; later ones have that of the last.
        is_scaled: the steps are weighted by softmax(q.k / sqrt(W)), in BK's published code by softmax(q.k).
    """

    encoder: Encoder
    num_actions: int
    width: int = 128
    feed_forward: int = 2048
    max_time: int = 1000
    is_scaled: bool = True

    def setup(self) -> None:
        self.state = Dense(self.width, FAN_IN_UNIFORM)
        self.action = nn.Embed(self.num_actions, self.width, embedding_init=nn.initializers.normal(1.0))
        self.time = nn.Embed(self.max_time, self.width, embedding_init=nn.initializers.normal(1.0))
        self.self_attention, self.cross_attention = _Attention(), _Attention()
        self.hidden_0, self.hidden_1 = Dense(self.feed_forward, FAN_IN_UNIFORM), Dense(self.width, FAN_IN_UNIFORM)
        self.norm_0, self.norm_1, self.norm_2 = (nn.LayerNorm(_EPS) for _ in range(3))
        self.query, self.key = Dense(self.width, FAN_IN_UNIFORM), Dense(self.width, FAN_IN_UNIFORM)
        self.value = Dense(1, FAN_IN_UNIFORM)

    def embed(self, observations: dict[str, Array]) -> Array:
        """Embeds states {name: [N, ...]} -> [N, W]."""
        with jax.default_matmul_precision(_PRECISION):
            return self.state(nn.relu(self.encoder(observations).astype(jnp.float32)))

    def __call__(self, observations: dict[str, Array], actions: Array, times: Array) -> Values:
        """Values all steps of segments: {name: [N, L, ...]}, actions and times [N, L] int32."""
        num, length = actions.shape
        states = self.embed({name: x.reshape(-1, *x.shape[2:]) for name, x in observations.items()})
        with jax.default_matmul_precision(_PRECISION):
            hidden = self._hidden(states.reshape(num, length, -1), actions, times, range(length))
            scores = jnp.einsum("niw,njw->nij", self.query(hidden), self.key(hidden))
            weights = _masked_softmax(scores / (self.width**0.5 if self.is_scaled else 1.0), np.tri(length, dtype=bool))
            return Values(self.value(hidden)[..., 0], weights, hidden)

    def last_values(self, states: Array, actions: Array, times: Array) -> Array:
        """Returns [N], the value of the last step of each, from embedded states [N, L, W]."""
        with jax.default_matmul_precision(_PRECISION):
            hidden = self._hidden(states, actions, times, [actions.shape[1] - 1])
            return self.value(hidden)[:, 0, 0]

    def _hidden(self, states: Array, actions: Array, times: Array, steps: "range | list[int]") -> Array:
        """Returns [N, len(steps), W] at the actions of these steps."""
        time = self.time(jnp.clip(times, 0, self.max_time - 1))
        known = jnp.clip(actions, 0, self.num_actions - 1)
        action = self.action(known) * (actions == known)[..., None]
        tokens = jnp.stack([states + time, action + time], axis=2).reshape(len(states), -1, self.width)
        rows = np.array([2 * step + 1 for step in steps])
        mask = np.tri(tokens.shape[1], dtype=bool)[rows]
        x = tokens[:, rows]
        x = self.norm_0(x + self.self_attention(x, tokens, mask))
        x = self.norm_1(x + self.cross_attention(x, tokens, mask))
        return self.norm_2(x + self.hidden_1(nn.relu(self.hidden_0(x))))


def _masked_softmax(scores: Array, mask: np.ndarray) -> Array:
    return nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
