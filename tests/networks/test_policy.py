"""The actor-critic: sizes, unrolling, resets, the CPU's form against the other, refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.networks import cpu, images
from oni_jax.networks.initializers import ORTHOGONAL
from oni_jax.networks.policy import init_params, make_policy, with_tables
from oni_jax.ops.glyph_table import glyph_table
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.learning import NetworkConfig, RgbcropConfig, TorchbeastConfig
from oni_jax.types import ArraySpec, EnvSpec

OBSERVATIONS = {
    "chars": ArraySpec((12, 12), "uint8"),
    "colors": ArraySpec((12, 12), "uint8"),
    "vector_obs": ArraySpec((27,), "float32"),
    "message": ArraySpec((256,), "uint8"),
    "glyphs": ArraySpec((21, 79), "int16"),
    "hero_xy": ArraySpec((2,), "int16"),
}
SPEC = EnvSpec(OBSERVATIONS, 28, True, ())
TINY_SPEC = EnvSpec({"x": ArraySpec((3,), "float32"), "y": ArraySpec((2, 2), "uint8")}, 4, False, ())
GLYPH_TABLE = np.random.default_rng(0).integers(0, 256, (256, 16, 6, 6, 3), np.uint8)
SMALL = NetworkConfig(hidden_size=16)


def observations_of(spec: EnvSpec, *shape: int) -> dict[str, jax.Array]:
    rng = np.random.default_rng(1)
    first = {"chars": ord("0")}  # the first characters are blank
    return {
        name: jnp.asarray(first.get(name, 0) + rng.integers(0, 16, (*shape, *a.shape)), a.dtype)
        for name, a in spec.observations.items()
    }


@pytest.fixture(scope="module")
def default_params():
    return init_params(make_policy(NetworkConfig(), SPEC), SPEC, jax.random.key(0))["params"]


def test_default_policy_has_the_specified_number_of_parameters(default_params):
    assert sum(x.size for x in jax.tree.leaves(default_params)) == 2_797_181


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rnn_type": "lstm"},
        {"rnn_num_layers": 2},
        {"use_rnn": False},
        {"nonlinearity": "tanh"},
    ],
)
def test_unroll_equals_steps_and_starts_anew_with_each_episode(changes):
    network = dataclasses.replace(SMALL, encoder_custom="mlp_encoder", **changes)
    policy = make_policy(network, TINY_SPEC)
    params = init_params(policy, TINY_SPEC, jax.random.key(0))
    observations = observations_of(TINY_SPEC, 6, 3)
    is_first = jnp.zeros((6, 3), bool).at[3, 1].set(True)
    state = jax.tree.map(lambda x: x + 0.5, policy.initial_state(3))
    apply = jax.jit(policy.apply)
    output, last_state = apply(params, observations, state, is_first)
    assert output.logits.shape == (6, 3, 4)
    assert output.values.shape == (6, 3)

    for t in range(6):
        step = {name: x[t : t + 1] for name, x in observations.items()}
        if t == 3:  # a manual reset
            state = jax.tree.map(lambda x: x.at[1].set(0.0), state)
        one, state = apply(params, step, state, jnp.zeros((1, 3), bool))
        np.testing.assert_allclose(one.logits[0], output.logits[t], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(one.values[0], output.values[t], rtol=1e-4, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), state, last_state)


@pytest.mark.parametrize("subtype", ["convnet_simple", pytest.param("convnet_impala", marks=pytest.mark.slow)])
def test_look_up_changes_no_value_and_no_gradient(subtype, monkeypatch):
    monkeypatch.setattr(images, "MIN_IMAGES_PER_TABLE", 8)
    policy = make_policy(with_values(SMALL, {"encoder_subtype": subtype, "use_rnn": False}), SPEC)
    params = init_params(policy, SPEC, jax.random.key(0))
    observations, is_first = observations_of(SPEC, 1, 9), jnp.zeros((1, 9), bool)

    def gradients(on_cpu: bool):
        monkeypatch.setattr(cpu, "used", on_cpu)

        def loss(params):
            output, _ = policy.apply(params, observations, (), is_first)
            return jnp.sum(jnp.sin(output.logits)) + jnp.sum(output.values), output

        return jax.jit(jax.grad(loss, has_aux=True))(params)

    def compare(a: jax.Array, b: jax.Array) -> None:
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs(b).max())

    jax.tree.map(compare, gradients(True), gradients(False))


def test_resnet_in_chunks_changes_no_value(monkeypatch):
    network = images.ResNet(jax.nn.relu, ORTHOGONAL)
    window = images.make_window(GLYPH_TABLE, 0.0, 255.0)(*np.random.default_rng(2).integers(0, 16, (2, 5, 1, 2)))
    params = jax.jit(network.init)(jax.random.key(0), window)
    outputs = []
    for on_cpu in (True, False):
        monkeypatch.setattr(cpu, "used", on_cpu)
        outputs.append(jax.jit(lambda params: network.apply(params, window))(params))
    assert outputs[0].shape == (5, 32 * 1 * 2)  # 6 x 12 pixels, halved three times
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)


def test_tables_made_beforehand_change_no_output():
    policy = make_policy(SMALL, SPEC)
    params = init_params(policy, SPEC, jax.random.key(0))
    arguments = observations_of(SPEC, 1, 3), policy.initial_state(3), jnp.zeros((1, 3), bool)
    apply = jax.jit(policy.apply)
    expected, _ = apply(params, *arguments)
    tabled = jax.jit(lambda params: with_tables(policy, params))(params)
    assert "tables" in tabled
    np.testing.assert_allclose(apply(tabled, *arguments)[0].logits, expected.logits, rtol=1e-4, atol=1e-5)
    tabled["tables"] = jax.tree.map(jnp.zeros_like, tabled["tables"])
    assert np.abs(apply(tabled, *arguments)[0].logits - expected.logits).max() > 1e-3  # they are read


def test_pixels_are_shifted_and_scaled():
    network = with_values(SMALL, {"obs_subtract_mean": 128.0, "obs_scale": 64.0})
    window = make_policy(network, SPEC).encoder.window
    images_ = window(jnp.full((1, 1, 1), 65, jnp.uint8), jnp.full((1, 1, 1), 7, jnp.uint8))
    expected = (glyph_table()[65, 7].astype(np.float32) - 128) / 64
    np.testing.assert_allclose(images_.tiles[images_.codes[0, 0, 0]], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("network", "spec", "words"),
    [
        (NetworkConfig(encoder_custom="conv"), SPEC, "--encoder_custom conv: unknown"),
        (
            NetworkConfig(encoder_custom="nle_torchbeast_encoder", torchbeast=TorchbeastConfig(use_crop=True)),
            SPEC,
            "use_blstats",
        ),
        (
            NetworkConfig(encoder_custom="nle_torchbeast_encoder", torchbeast=TorchbeastConfig(msg_model="none")),
            SPEC,
            "sees nothing",
        ),
        (NetworkConfig(rgbcrop=RgbcropConfig(subtype="resnet_impala")), SPEC, "--encoder_type=resnet"),
    ],
)
def test_impossible_networks_are_refused_in_one_line(network, spec, words):
    with pytest.raises(UserError, match=words) as error:
        make_policy(network, spec)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_torchbeast_encoder_serves_a_policy():
    network = NetworkConfig(
        encoder_custom="nle_torchbeast_encoder",
        hidden_size=8,
        torchbeast=TorchbeastConfig(
            use_blstats=True, use_crop=True, use_glyphs=True, msg_model="lt_cnn_small", embedding_dim=4, hidden_dim=8
        ),
    )
    policy = make_policy(network, SPEC)
    params = init_params(policy, SPEC, jax.random.key(0))
    arguments = observations_of(SPEC, 2, 2), policy.initial_state(2), jnp.zeros((2, 2), bool)
    output, _ = jax.jit(policy.apply)(params, *arguments)
    assert output.logits.shape == (2, 2, 28)
