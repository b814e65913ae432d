"""Base class of encoders."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from oni_jax.networks.activations import ACTIVATIONS
from oni_jax.networks.initializers import POLICY_INITIALIZATIONS, Initialization
from oni_jax.networks.precision import PRECISIONS, Dense
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import Array, ArraySpec


def is_numeric(encoder: nn.Module, array: ArraySpec) -> bool:
    """Returns whether an encoder reads an observation as numbers, and so may be given it normalised, as float32."""
    method = getattr(encoder, "is_numeric", None)
    return method(array) if method else array.dtype.startswith("float") and not array.num_ids


class Encoder(nn.Module):
    """Observations {name: [N, ...]} -> [N, D], of the kind and sizes in the settings."""

    network: NetworkConfig

    @property
    def activation(self) -> Callable[[Array], Array]:
        return ACTIVATIONS[self.network.nonlinearity]

    @property
    def initialization(self) -> Initialization:
        return POLICY_INITIALIZATIONS[self.network.policy_initialization]

    @property
    def dtype(self) -> np.dtype:
        """Type of the activations."""
        return PRECISIONS[self.network.precision].dtype

    def scaled(self, text: Array) -> Array:
        """Scales a text's bytes to [0, 1]."""
        return (text.astype(jnp.float32) / 255).astype(self.dtype)

    def dense(self, x: Array, size: int, name: str) -> Array:
        """Applies a dense layer of this name, and the activation."""
        return self.activation(Dense(size, self.initialization, name=name)(x))
