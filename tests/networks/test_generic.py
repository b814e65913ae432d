"""Generic encoder: the same with and without the look-up of a CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.networks import cpu
from oni_jax.networks.cpu.ids import is_faster
from oni_jax.networks.generic import make_generic_encoder
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import ArraySpec, EnvSpec

SPEC = EnvSpec({"tiles": ArraySpec((3, 4), "uint8", num_ids=7), "status": ArraySpec((5,), "float32")}, 3, False, ())


def encoder_and_inputs(num_rows):
    encoder = make_generic_encoder(NetworkConfig(hidden_size=8), SPEC)
    random = np.random.default_rng(0)
    tiles = random.integers(0, 9, (num_rows, 3, 4), np.uint8)  # two of them are no ids
    return encoder, {"tiles": tiles, "status": random.normal(size=(num_rows, 5)).astype(np.float32)}


def run(encoder, inputs):
    params = encoder.init(jax.random.key(0), inputs)
    outputs, pullback = jax.vjp(lambda params: encoder.apply(params, inputs), params)
    return params, outputs, pullback(jnp.sin(outputs))[0]


def test_a_look_up_changes_no_parameter_no_value_and_no_gradient(monkeypatch):
    encoder, inputs = encoder_and_inputs(50)
    monkeypatch.setattr(cpu, "used", False)
    plain = run(encoder, inputs)
    monkeypatch.setattr(cpu, "used", True)
    looked_up = run(encoder, inputs)
    assert "scan" in str(jax.make_jaxpr(encoder.apply)(looked_up[0], inputs))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), looked_up, plain)


@pytest.mark.parametrize("length", [20, *(pytest.param(length, marks=pytest.mark.slow) for length in (123, 128, 300))])
def test_every_byte_of_a_text_is_read(length):
    encoder = make_generic_encoder(
        NetworkConfig(hidden_size=8), EnvSpec({"text": ArraySpec((length,), "uint8")}, 3, False, ())
    )
    texts = np.random.default_rng(0).integers(ord("a"), ord("z"), length, np.uint8)
    changed = np.where(np.eye(length, dtype=bool), ord("z"), texts)
    params = encoder.init(jax.random.key(0), {"text": texts[None]})
    whole, *others = encoder.apply(params, {"text": np.concatenate([texts[None], changed]).astype(np.uint8)})
    assert (np.abs(np.array(others) - whole).max(-1) > 1e-5).all()


@pytest.mark.parametrize("sizes", [(1, 7, "float32"), (4096, 2000, "float32"), (4096, 7, "bfloat16")])
def test_few_rows_many_ids_and_few_bits_are_embedded(sizes):
    num_rows, num_ids, dtype = sizes
    assert not is_faster(num_rows, num_ids, jnp.dtype(dtype))
    assert is_faster(4096, 7, np.dtype(np.float32))
