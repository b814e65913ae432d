"""Modulation of features by a goal: each is scaled and shifted, as in FiLM (Perez et al. 2018, arXiv 1709.07871)."""

from flax import linen as nn

from oni_jax.networks.initializers import Initialization
from oni_jax.networks.precision import Dense
from oni_jax.types import Array

SPREAD = 0.5  # spread of the first scales and shifts: goals differ from the first step on
INITIALIZATION = Initialization(nn.initializers.normal(SPREAD))


class Modulation(nn.Module):
    """Scales and shifts features by numbers that are linear in a goal's features, a vector of length 1."""

    @nn.compact
    def __call__(self, x: Array, goals: Array) -> Array:
        """x [N, D], goals [N, F] -> [N, D] in x's type."""
        size, goals = x.shape[-1], goals.astype(x.dtype)
        scale = Dense(size, INITIALIZATION, name="scale")(goals)
        return x * (1 + scale) + Dense(size, INITIALIZATION, name="shift")(goals)
