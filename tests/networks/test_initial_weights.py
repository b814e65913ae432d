"""Initial weights of every network, as published: standard deviation and largest value of each layer."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs import nethack
from oni_jax.envs.registry import env_spec
from oni_jax.networks.classifier import MessageClassifier
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.networks.policy import init_params, make_policy
from oni_jax.settings.fields import with_values
from oni_jax.settings.learning import NetworkConfig, TorchbeastConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import PyTree

SPEC = env_spec(EnvConfig(), nethack.OBSERVATIONS)
MAX_NORMAL = 6.0  # standard deviations; one in 1e9 numbers is larger


class Expected(NamedTuple):
    """Known facts of a layer's weights."""

    deviation: float
    largest: float  # none is larger
    smallest_largest: float = 0.0  # but one is as large as this, where there are many


def uniform(fan: int) -> Expected:
    """Uniform in +-1/sqrt(fan)."""
    bound = fan**-0.5
    return Expected(bound / 3**0.5, bound, 0.95 * bound)


def two_uniform(fan: int) -> Expected:
    """The sum of two biases, each uniform in +-1/sqrt(fan)."""
    bound = fan**-0.5
    return Expected((2 / 3) ** 0.5 * bound, 2 * bound, 1.6 * bound)


def orthogonal(inputs: int, outputs: int) -> Expected:
    """Rows or columns, whichever are fewer, of length 1 and orthogonal."""
    deviation = max(inputs, outputs) ** -0.5
    return Expected(deviation, MAX_NORMAL * deviation)


ZERO = Expected(0.0, 0.0)
NORMAL = Expected(1.0, MAX_NORMAL, 3.0)
MESSAGE_CONVS = {f"conv_{i}": fan for i, fan in enumerate((7 * 32, 7 * 64, 3 * 64, 3 * 64, 3 * 64, 3 * 64))}


def layer(path: str, kernel: Expected, bias: Expected) -> dict[str, Expected]:
    return {f"{path}/kernel": kernel, f"{path}/bias": bias}


def fan_in_uniform(path: str, fan: int) -> dict[str, Expected]:
    return layer(path, uniform(fan), uniform(fan))


def orthogonal_layer(path: str, inputs: int, outputs: int) -> dict[str, Expected]:
    return layer(path, orthogonal(inputs, outputs), ZERO)


def message_network(path: str, dense: dict[str, Expected]) -> dict[str, Expected]:
    convs = [fan_in_uniform(f"{path}/{name}", fan) for name, fan in MESSAGE_CONVS.items()]
    return {f"{path}/embedding": NORMAL, **functools.reduce(dict.__or__, convs), **dense}  # type: ignore


HEADS = {
    **orthogonal_layer("encoder/vector_0", 27, 128),
    **orthogonal_layer("encoder/vector_1", 128, 128),
    **orthogonal_layer("encoder/message_0", 256, 128),
    **orthogonal_layer("encoder/message_1", 128, 128),
    **orthogonal_layer("logits", 512, 23),
    **orthogonal_layer("value", 512, 1),
}
GRU = {
    "core/layer_0/input_kernel": uniform(512),
    "core/layer_0/hidden_kernel": uniform(512),
    "core/layer_0/input_bias/merged": two_uniform(512),  # the reset and update gates
    "core/layer_0/input_bias/new": uniform(512),
    "core/layer_0/hidden_new_bias": uniform(512),
}
LSTM = {
    "core/layer_0/input_kernel": uniform(512),
    "core/layer_0/hidden_kernel": uniform(512),
    "core/layer_0/input_bias": two_uniform(512),
}
CONVS = {
    **fan_in_uniform("encoder/image_stack/conv_0", 8 * 8 * 3),
    **fan_in_uniform("encoder/image_stack/conv_1", 4 * 4 * 32),
    **fan_in_uniform("encoder/image_stack/conv_2", 3 * 3 * 64),
    **fan_in_uniform("encoder/image", 1152),
}
IMPALA_CONVS = {
    **fan_in_uniform("encoder/image_stack/conv_0", 8 * 8 * 3),
    **fan_in_uniform("encoder/image_stack/conv_1", 4 * 4 * 16),
    **fan_in_uniform("encoder/image", 1568),
}
RESNET = functools.reduce(
    dict.__or__,
    [
        orthogonal_layer(f"encoder/image_stack/stage_{stage}_conv_{i}", 9 * (before if i == 0 else features), features)
        for stage, (before, features) in enumerate([(3, 16), (16, 32), (32, 32)])
        for i in range(5)
    ],
    orthogonal_layer("encoder/image", 2592, 512),  # type: ignore
)
RANKING = {
    **orthogonal_layer("encoder/blstats_0", 27, 128),
    **orthogonal_layer("encoder/blstats_1", 128, 128),
    **orthogonal_layer("encoder/crop/conv_0", 9 * 128, 16),
    **orthogonal_layer("encoder/crop/conv_1", 9 * 16, 8),
    **orthogonal_layer("encoder/glyphs/conv_0", 9 * 128, 16),
    **orthogonal_layer("encoder/glyphs/conv_1", 9 * 16, 8),
    "encoder/glyph_embedding": NORMAL,
    **message_network("encoder/message", orthogonal_layer("encoder/message/dense_0", 320, 128)),
    **orthogonal_layer("encoder/dense_0", 3264, 256),
    **orthogonal_layer("encoder/dense_1", 256, 512),
    **orthogonal_layer("reward", 512, 1),
}
CLASSIFIER = {
    **message_network("message", fan_in_uniform("message/dense_0", 320)),
    **fan_in_uniform("dense_0", 128),
    **fan_in_uniform("dense_1", 512),
    **fan_in_uniform("logits", 512),
}


def policy_params(key: jax.Array, **network: object) -> PyTree:
    return init_params(make_policy(with_values(NetworkConfig(), network), SPEC), SPEC, key)


def ranking_params(key: jax.Array) -> PyTree:
    network = make_ranking_network(
        NetworkConfig(torchbeast=TorchbeastConfig(use_blstats=True, use_crop=True, use_glyphs=True))
    )
    zeros = {name: jnp.zeros((1, *array.shape), array.dtype) for name, array in SPEC.observations.items()}
    return jax.jit(network.init)(key, zeros)


def classifier_params(key: jax.Array) -> PyTree:
    return jax.jit(MessageClassifier().init)(key, jnp.zeros((1, 256), jnp.uint8))


NETWORKS: dict[str, tuple[Callable[[jax.Array], PyTree], dict[str, Expected]]] = {
    "policy": (policy_params, {**CONVS, **HEADS, **GRU}),
    "impala": (
        functools.partial(policy_params, encoder_subtype="convnet_impala", rnn_type="lstm"),
        {**IMPALA_CONVS, **HEADS, **LSTM},
    ),
    "resnet": (
        functools.partial(policy_params, encoder_type="resnet", encoder_subtype="resnet_impala"),
        {**RESNET, **HEADS, **GRU},
    ),
    "ranking": (ranking_params, RANKING),
    "classifier": (classifier_params, CLASSIFIER),
}

SLOW = ("impala", "resnet", "ranking")


def weights_by_name(params: PyTree) -> dict[str, np.ndarray]:
    named = {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(x)
        for path, x in jax.tree_util.tree_leaves_with_path(params["params"])
    }
    biases = [name for name in named if name.endswith("input_bias") and named[name].size == 3 * 512]
    for name in biases:
        named[f"{name}/merged"], named[f"{name}/new"] = np.split(named.pop(name), [2 * 512])
    return named


@functools.cache
def draws_of(name: str) -> list[dict[str, np.ndarray]]:
    """Three draws of a network's weights, by a program that is compiled once."""
    make = jax.jit(NETWORKS[name][0])
    return [weights_by_name(make(jax.random.key(seed))) for seed in range(3)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in NETWORKS]
)
def test_deviation_and_largest_weight_of_each_layer(name):
    _, expected = NETWORKS[name]
    draws = draws_of(name)
    assert set(draws[0]) == set(expected)
    for path, (deviation, largest, smallest_largest) in expected.items():
        weights = np.stack([draw[path][1:] if path.endswith("/embedding") else draw[path] for draw in draws])
        assert np.abs(weights).max() <= largest * (1 + 1e-6), path
        if weights.size >= 1000:
            assert np.abs(weights).max() >= smallest_largest, path
        # The deviation of a sample of n numbers is off by 1 / sqrt(2 n) in the mean; root mean square: zero is known.
        tolerance = 4 / math.sqrt(2 * weights.size)
        assert math.sqrt(np.mean(weights.astype(np.float64) ** 2)) == pytest.approx(deviation, rel=tolerance), path


@pytest.mark.parametrize(
    "name, path",
    [
        pytest.param("ranking", "encoder/message/embedding", marks=pytest.mark.slow),
        ("classifier", "message/embedding"),
    ],
)
def test_padding_is_embedded_as_zero(name, path):
    assert not draws_of(name)[0][path][0].any()


@pytest.mark.parametrize("name", ["policy", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_orthogonal_kernels_are_orthogonal(name):
    _, expected = NETWORKS[name]
    for path, weights in draws_of(name)[0].items():
        if path.endswith("/kernel") and expected[path.replace("/kernel", "/bias")] == ZERO:
            matrix = weights.reshape(-1, weights.shape[-1])
            gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
            np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-4, err_msg=path)


def test_xavier_uniform_reaches_what_orthogonal_does():
    weights = weights_by_name(policy_params(jax.random.key(0), policy_initialization="xavier_uniform"))
    bound = (6 / (27 + 128)) ** 0.5
    assert 0.95 * bound < np.abs(weights["encoder/vector_0/kernel"]).max() <= bound
    assert np.abs(weights["encoder/image_stack/conv_0/kernel"]).max() <= 192**-0.5
