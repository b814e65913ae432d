"""Encoders for any environment: of all its observations, flattened, or each by its shape and type."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from oni_jax.networks.convolution import Conv2d, ConvParams, convolve
from oni_jax.networks.embedding import embedded_product
from oni_jax.networks.encoder import Encoder
from oni_jax.networks.messages import MessageNetwork
from oni_jax.networks.precision import DenseParams, add_bias
from oni_jax.networks.registry import SPACE
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import Array, ArraySpec, EnvSpec

IMAGE_LAYERS = ((32, 3, 2), (64, 3, 2))  # features, kernel size, stride
PIXEL_SCALE = 255.0
TEXT_MODEL, TEXT_PIECE = "lt_cnn_small", 123  # model of each piece of a text; of more bytes its poolings drop the last
EMBEDDING_SIZE = 16  # embedding of an id
MAX_EMBEDDED = 1 << 14  # numbers of embedded ids that are flattened; of more, the mean over ids is taken


def kind_of(array: ArraySpec) -> str:
    """Returns an observation's kind: `ids`, `image` ([H, W, C] uint8), `text` ([M] uint8), `key` of a text, or else
    `vector`.
    """
    if array.num_ids or array.is_key:
        return "ids" if array.num_ids else "key"
    if array.dtype == "uint8":
        return {3: "image", 1: "text"}.get(len(array.shape), "vector")
    return "vector"


def _bits(keys: Array) -> Array:
    """Returns the bits [N, 8 M] of keys [N, M]."""
    return jnp.unpackbits(keys, axis=-1)


class MlpEncoder(Encoder):
    """Encoder for tiny environments: one dense layer over all observations, flattened."""

    observations: Mapping[str, ArraySpec]

    def is_numeric(self, array: ArraySpec) -> bool:
        return not array.is_key

    @nn.compact
    def __call__(self, observations: Mapping[str, Array]) -> Array:
        """Observations {name: [N, ...]} -> [N, hidden_size]."""
        flat = []
        for name in sorted(self.observations):
            x = observations[name]
            flat.append(_bits(x) if self.observations[name].is_key else x.reshape(x.shape[0], -1))
        x = jnp.concatenate([x.astype(self.dtype) for x in flat], axis=-1)
        return self.dense(x, self.network.hidden_size, "dense")


class GenericEncoder(Encoder):
    """Encoder of images by small convolutions, texts by the small message network, texts' keys as bits, embedded ids,
    and all else as it is: a dense layer over the features of each, and another over all together.
    """

    observations: Mapping[str, ArraySpec]

    def is_numeric(self, array: ArraySpec) -> bool:
        return kind_of(array) in ("image", "vector")

    @nn.compact
    def __call__(self, observations: Mapping[str, Array]) -> Array:
        """Observations {name: [N, ...]} -> [N, hidden_size]."""
        parts = [
            getattr(self, f"_{kind_of(array)}")(name, observations[name]) for name, array in self.observations.items()
        ]
        return self.dense(jnp.concatenate(parts, axis=-1), self.network.hidden_size, "dense")

    def _part(self, name: str, features: Array) -> Array:
        return self.dense(features.reshape(features.shape[0], -1), self.network.hidden_size, f"{name}_dense")

    def _vector(self, name: str, x: Array) -> Array:
        return self._part(name, x.astype(self.dtype))

    def _key(self, name: str, x: Array) -> Array:
        return self._part(name, _bits(x).astype(self.dtype))

    def _image(self, name: str, x: Array) -> Array:
        highest = self.observations[name].highest if self.network.image_scale == SPACE else ()
        scale = np.maximum(highest or PIXEL_SCALE, 1.0).astype(np.float32)
        scale = scale if x.dtype == jnp.uint8 else 1.0  # floats are normalised pixels
        x = (x.astype(jnp.float32) / scale).astype(self.dtype)
        layers, channels, side = [], x.shape[3], min(x.shape[1:3])
        for i, (features, size, stride) in enumerate(IMAGE_LAYERS):
            if side < size:
                break
            params = ConvParams(features, (size, size), self.initialization, name=f"{name}_conv_{i}")
            layers.append((*params(channels), stride))
            channels, side = features, (side - size) // stride + 1

        def network(x: Array, conv2d: Conv2d) -> Array:
            for kernel, bias, stride in layers:
                x = self.activation(add_bias(conv2d(x, kernel, stride), bias))
            return x.reshape(x.shape[0], -1)

        return self._part(name, convolve(network, x))

    def _text(self, name: str, x: Array) -> Array:
        network = MessageNetwork(TEXT_MODEL, self.initialization, self.dtype, name=f"{name}_text")
        if x.shape[1] > TEXT_PIECE:
            x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % TEXT_PIECE)))
        return self._part(name, network(x.reshape(-1, min(TEXT_PIECE, x.shape[1]))).reshape(x.shape[0], -1))

    def _ids(self, name: str, x: Array) -> Array:
        num_ids = self.observations[name].num_ids
        embedding = self.param(f"{name}_embedding", nn.initializers.normal(1.0), (num_ids, EMBEDDING_SIZE))
        ids = jnp.clip(x.astype(jnp.int32), 0, num_ids - 1).reshape(x.shape[0], -1)
        size = ids.shape[1] * EMBEDDING_SIZE
        if size > MAX_EMBEDDED:
            return self._part(name, embedding[ids].astype(self.dtype).mean(axis=1))
        kernel, bias = DenseParams(self.network.hidden_size, self.initialization, name=f"{name}_dense")(size)
        return self.activation(add_bias(embedded_product([(ids, embedding)], kernel, self.dtype), bias))


def make_generic_encoder(network: NetworkConfig, spec: EnvSpec) -> GenericEncoder:
    """Makes an encoder of all observations of an environment."""
    return GenericEncoder(network, dict(spec.observations))


def make_mlp_encoder(network: NetworkConfig, spec: EnvSpec) -> MlpEncoder:
    """Makes an encoder of all observations of a tiny environment."""
    return MlpEncoder(network, dict(spec.observations))
