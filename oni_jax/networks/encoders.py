"""Encoders of a policy: observations {name: [N, ...]} -> [N, D]."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from oni_jax.networks.images import ConvStack, ResNet, Window
from oni_jax.networks.initializers import Initialization
from oni_jax.networks.precision import Dense
from oni_jax.networks.tiles import TiledImages
from oni_jax.types import Array

HEAD_SIZE = 128  # of the layers over the statistics and the message


@jax.custom_jvp
def elu(x: Array) -> Array:
    """x where positive, else exp(x) - 1. Its derivative is read off its value: nothing else need be kept."""
    below = jnp.exp(jnp.minimum(x, 0).astype(jnp.float32)) - 1  # few bits would leave little of the difference
    return jnp.where(x > 0, x, below.astype(x.dtype))


@elu.defjvp
def _elu_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    y = elu(*primals)
    return y, tangents[0] * (jnp.minimum(y, 0) + 1)


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {"elu": elu, "relu": nn.relu, "tanh": nn.tanh}


class RgbCropEncoder(nn.Module):
    """Image, statistics, message.

    Reads `vector_obs` [N, D], `message` [N, M] uint8 and an image: drawn from `chars` and `colors` [N, 12, 12],
    or, without `window`, as it is in `obs` [N, 3, 72, 72] uint8.
    """

    image_stack: ConvStack | ResNet  # images [N, H, W, 3], drawn or in tiles -> [N, F]; a dense layer follows
    window: Window | None
    hidden_size: int
    activation: Callable[[Array], Array]
    initialization: Initialization
    obs_subtract_mean: float
    obs_scale: float
    dtype: np.dtype

    def required_observations(self) -> tuple[str, ...]:
        image = ("obs",) if self.window is None else ("chars", "colors")
        return (*image, "vector_obs", "message")

    def _dense(self, x: Array, size: int, name: str) -> Array:
        return self.activation(Dense(size, self.initialization, name=name)(x))

    def _images(self, observations: Mapping[str, Array]) -> Array | TiledImages:
        if self.window is not None:
            return self.window(observations["chars"], observations["colors"])
        pixels = jnp.moveaxis(observations["obs"], 1, -1).astype(jnp.float32)
        return ((pixels - self.obs_subtract_mean) / self.obs_scale).astype(self.dtype)

    @nn.compact
    def __call__(self, observations: Mapping[str, Array]) -> Array:
        """-> [N, hidden_size + 128 + D + 128]."""
        image = self.image_stack(self._images(observations))
        image = self.activation(Dense(self.hidden_size, self.image_stack.initialization, name="image")(image))
        statistics = observations["vector_obs"].astype(self.dtype)
        vector = self._dense(self._dense(statistics, HEAD_SIZE, "vector_0"), HEAD_SIZE, "vector_1")
        message = (observations["message"].astype(jnp.float32) / 255).astype(self.dtype)
        message = self._dense(self._dense(message, HEAD_SIZE, "message_0"), HEAD_SIZE, "message_1")
        return jnp.concatenate([image, vector, statistics, message], axis=-1)


class MlpEncoder(nn.Module):
    """Every observation, flattened, through one dense layer: for tiny environments."""

    hidden_size: int
    activation: Callable[[Array], Array]
    initialization: Initialization
    dtype: np.dtype

    def required_observations(self) -> tuple[str, ...]:
        return ()

    @nn.compact
    def __call__(self, observations: Mapping[str, Array]) -> Array:
        """-> [N, hidden_size]."""
        flat = [observations[name].astype(self.dtype) for name in sorted(observations)]
        x = jnp.concatenate([x.reshape(x.shape[0], -1) for x in flat], axis=-1)
        return self.activation(Dense(self.hidden_size, self.initialization, name="dense")(x))
