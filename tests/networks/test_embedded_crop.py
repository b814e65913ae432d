"""NetHack's embedding encoder against NumPy, with and without the look-up of a CPU."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.registry import env_spec
from oni_jax.networks import cpu
from oni_jax.networks.embedded_crop import NUM_CHARS, NUM_COLORS, make_embedded_encoder
from oni_jax.networks.registry import find_encoder
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.worlds import EnvConfig

NETWORK = NetworkConfig(encoder_custom="nle_embedded_encoder", hidden_size=8, nonlinearity="relu")
SPEC = env_spec(EnvConfig(), find_encoder(NETWORK).observations(NETWORK))


def inputs_of(num_rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "chars": random.integers(0, 256, (num_rows, 12, 12), np.uint8),
        "colors": random.integers(0, 32, (num_rows, 12, 12), np.uint8),
        "vector_obs": random.normal(size=(num_rows, 27)).astype(np.float32),
        "message": random.integers(0, 256, (num_rows, 256), np.uint8),
    }


def apply(params, inputs) -> jax.Array:
    found = make_embedded_encoder(NETWORK, SPEC).apply(params, inputs)
    assert isinstance(found, jax.Array)
    return found


def reference(params, inputs) -> np.ndarray:
    def dense(x, name):
        return np.maximum(x @ params[name]["kernel"] + params[name]["bias"], 0)

    chars = params["char_embedding"][np.minimum(inputs["chars"], NUM_CHARS - 1)]
    colors = params["color_embedding"][np.minimum(inputs["colors"], NUM_COLORS - 1)]
    window = dense(dense((chars + colors).reshape(len(chars), -1), "window_0"), "window_1")
    statistics = inputs["vector_obs"]
    return np.concatenate(
        [window, dense(statistics, "vector"), statistics, dense(inputs["message"] / 255, "message")], axis=1
    )


@pytest.mark.parametrize(("num_rows", "num_looked_up"), [(5, 0), (600, 2)])
def test_encoder_equals_the_reference_and_a_look_up_keeps_gradients(num_rows, num_looked_up, monkeypatch):
    encoder, inputs, found = make_embedded_encoder(NETWORK, SPEC), inputs_of(num_rows), []
    for used in (False, True):
        monkeypatch.setattr(cpu, "used", used)
        params = encoder.init(jax.random.key(0), inputs)
        assert (
            str(jax.make_jaxpr(lambda variables: apply(variables, inputs))(params)).count("scan[")
            == num_looked_up * used
        )
        outputs, pullback = jax.vjp(lambda variables: apply(variables, inputs), params)
        found.append((outputs, pullback(jnp.sin(outputs))[0]))
        expected = reference(jax.device_get(params)["params"], inputs)
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), *found)


def test_each_observation_matters():
    encoder, inputs = make_embedded_encoder(NETWORK, SPEC), inputs_of(5)
    params = encoder.init(jax.random.key(0), inputs)
    before = apply(params, inputs)
    for name, x in inputs.items():
        assert not np.array_equal(before, apply(params, {**inputs, name: np.zeros_like(x)}))


def test_bfloat16_is_nearly_the_same():
    inputs = inputs_of(600)
    params = make_embedded_encoder(NETWORK, SPEC).init(jax.random.key(0), inputs)
    coarse = make_embedded_encoder(dataclasses.replace(NETWORK, precision="bfloat16"), SPEC).apply(params, inputs)
    assert isinstance(coarse, jax.Array) and coarse.dtype == jnp.bfloat16
    np.testing.assert_allclose(coarse.astype(np.float32), apply(params, inputs), rtol=0.05, atol=0.05)
