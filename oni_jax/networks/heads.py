"""Heads of the policy: features [..., D] float32 to logits [..., A] and values [..., 1]. By `--policy_heads`."""

from collections.abc import Callable

from flax import linen as nn

from oni_jax.networks.initializers import Initialization, scaled_orthogonal
from oni_jax.networks.precision import Dense
from oni_jax.types import Array

# (features, number of actions, initial weights) -> logits, values; called within a module, whose layers they become.
Heads = Callable[[Array, int, Initialization], tuple[Array, Array]]


def linear_heads(features: Array, num_actions: int, initialization: Initialization) -> tuple[Array, Array]:
    """Applies one layer for each."""
    logits = Dense(num_actions, initialization, name="logits")(features)
    return logits, Dense(1, initialization, name="value")(features)


def bk_heads(features: Array, num_actions: int, initialization: Initialization) -> tuple[Array, Array]:
    """Applies a hidden layer and a layer for each, the critic's hidden layer as a residual (BK, arXiv 2407.03964).

    Initial weights are BK's, whatever the policy's: first policies are nearly uniform, first values nearly 0.
    """
    size, small = features.shape[-1], scaled_orthogonal(0.01)
    hidden = nn.relu(Dense(size, small, name="logits_hidden")(features))
    logits = Dense(num_actions, small, name="logits")(hidden)
    extra = nn.relu(Dense(size, scaled_orthogonal(0.1), name="value_hidden")(features))
    return logits, Dense(1, small, name="value")(features + extra)


HEADS: dict[str, Heads] = {"linear": linear_heads, "bk": bk_heads}
