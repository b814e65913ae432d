"""bfloat16 computes in bfloat16 and comes close; float32 and TF32 are what they say, whatever JAX's default is."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.networks import cpu, images
from oni_jax.networks.policy import init_params, make_policy, with_tables
from oni_jax.settings.learning import NetworkConfig, RgbcropConfig, TorchbeastConfig
from tests.networks.test_policy import OBSERVATIONS, SPEC

NUM_STEPS, BATCH = 4, 3
NETWORKS = {
    "conv": NetworkConfig(hidden_size=64),
    "resnet": NetworkConfig(hidden_size=64, rgbcrop=RgbcropConfig(type="resnet", subtype="resnet_impala")),
    "layers": NetworkConfig(hidden_size=64, rnn_type="lstm", rnn_num_layers=2, nonlinearity="tanh"),
    "torchbeast": NetworkConfig(
        encoder_custom="nle_torchbeast_encoder",
        hidden_size=64,
        torchbeast=TorchbeastConfig(use_blstats=True, use_crop=True, use_glyphs=True, embedding_dim=16, hidden_dim=64),
    ),
    "mlp": NetworkConfig(encoder_custom="mlp_encoder", hidden_size=64),
}
NUM_HEADS = 2  # whose products are float32


@pytest.fixture(params=[True, False], ids=["matrix_products", "convolutions"])
def on_cpu(request, monkeypatch):
    """The form for CPUs, and the one for GPUs."""
    monkeypatch.setattr(cpu, "used", request.param)
    monkeypatch.setattr(images, "MIN_IMAGES_PER_TABLE", 8)
    return request.param


def inputs(policy) -> tuple[dict[str, np.ndarray], Any, np.ndarray]:
    rng = np.random.default_rng(0)
    observations = {}
    for name, spec in OBSERVATIONS.items():
        shape = (NUM_STEPS, BATCH, *spec.shape)
        uniform = rng.uniform(-1, 1, shape).astype(np.float32)
        observations[name] = uniform if spec.dtype == "float32" else rng.integers(0, 16, shape).astype(spec.dtype)
    observations["chars"] += 32  # those of which most of a map is made
    is_first = np.zeros((NUM_STEPS, BATCH), bool)
    is_first[2, 1] = True
    return observations, policy.initial_state(BATCH), is_first


def build(name: str, precision: str):
    """(policy, the function params -> (their gradients, (output, last state)))"""
    policy = make_policy(dataclasses.replace(NETWORKS[name], precision=precision), SPEC)

    def loss(params):
        output, state = policy.apply(params, *inputs(policy))
        return jnp.mean(jnp.sin(3 * output.logits)) + jnp.mean(output.values**2), (output, state)

    return policy, jax.grad(loss, has_aux=True)


def shapes_of_params(policy) -> Any:
    return jax.eval_shape(lambda: init_params(policy, SPEC, jax.random.key(0)))


def products(jaxpr: Any) -> list[Any]:
    """Every matrix product and convolution in a program, those inside of loops and calls included."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            found.append(equation)
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            found += products(inner) if hasattr(inner, "eqns") else []
    return found


def traced_products(name: str, precision: str) -> list[Any]:
    """Those of a forward and a backward pass; nothing is compiled."""
    policy, gradient = build(name, precision)
    return products(jax.make_jaxpr(gradient)(shapes_of_params(policy)).jaxpr)


def is_head(equation) -> bool:
    """True for a product of the heads or of their gradients, by their sizes: the number of actions, or 1."""
    shapes = [var.aval.shape for var in (*equation.invars, *equation.outvars)]
    return any(SPEC.num_actions in shape or shape[-1] == 1 for shape in shapes)


@pytest.mark.parametrize("name", NETWORKS)
def test_bfloat16_has_every_product_in_bfloat16_but_the_heads(name, on_cpu):
    equations = traced_products(name, "bfloat16")
    heads = [equation for equation in equations if is_head(equation)]
    assert len(heads) == 3 * NUM_HEADS  # forward, and the gradients of both operands
    bodies = [equation for equation in equations if not is_head(equation)]
    assert len(bodies) >= 6
    for equation in bodies:
        assert {var.aval.dtype for var in equation.invars} == {jnp.dtype(jnp.bfloat16)}, equation


@pytest.mark.parametrize(("precision", "expected"), [("float32", "HIGHEST"), ("tf32", "HIGH")])
@pytest.mark.parametrize("name", NETWORKS)
def test_float32_products_say_how_exact_they_are(name, precision, expected, monkeypatch):
    monkeypatch.setattr(cpu, "used", False)
    equations = traced_products(name, precision)
    assert len(equations) >= 6
    for equation in equations:
        assert {var.aval.dtype for var in equation.invars} == {jnp.dtype(jnp.float32)}
        wanted = jax.lax.Precision[expected]
        assert equation.params["precision"] == (wanted, wanted), equation


@pytest.mark.parametrize("name", NETWORKS)
def test_bfloat16_keeps_parameters_and_results_in_float32(name):
    policy, gradient = build(name, "bfloat16")
    params = shapes_of_params(policy)
    trees = params, jax.eval_shape(gradient, params), policy.initial_state(1)
    assert {x.dtype for x in jax.tree.leaves(trees)} == {jnp.dtype(jnp.float32)}


def relative_error(ours, theirs) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@functools.cache
def in_float32():
    """(parameters, (their gradients, (output, last state)))"""
    policy, gradient = build("conv", "float32")
    params = init_params(policy, SPEC, jax.random.key(0))
    return params, jax.jit(gradient)(params)


def test_bfloat16_is_near_float32(on_cpu):
    params, (exact_gradients, exact_results) = in_float32()
    gradients, results = jax.jit(build("conv", "bfloat16")[1])(params)
    errors = jax.tree.map(relative_error, results, exact_results)
    assert all(0 < error < 2e-2 for error in jax.tree.leaves(errors)), errors
    errors = jax.tree.map(relative_error, gradients, exact_gradients)
    assert max(jax.tree.leaves(errors)) < 0.1, errors


def test_tables_in_bfloat16_are_the_ones_learnt_with():
    (policy, _), (params, _) = build("conv", "bfloat16"), in_float32()
    tabled = jax.jit(lambda params: with_tables(policy, params))(params)
    (table,) = jax.tree.leaves(tabled["tables"])
    assert table.dtype == jnp.float32
    apply = jax.jit(policy.apply)
    (acted, _), (learnt, _) = apply(tabled, *inputs(policy)), apply(params, *inputs(policy))
    np.testing.assert_allclose(acted.logits, learnt.logits, atol=2e-2)
