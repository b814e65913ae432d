"""Message and glyph networks: shapes, padding, the crop."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.networks.glyphs import crop_glyphs
from oni_jax.networks.messages import MessageNetwork


def messages(*texts: bytes) -> jax.Array:
    return jnp.asarray([list(text.ljust(256, b"\0")) for text in texts], jnp.uint8)


@pytest.mark.parametrize(("model", "size"), [("lt_cnn", 128), ("lt_cnn_small", 32)])
def test_sizes(model, size):
    network = MessageNetwork(model)
    batch = messages(b"You hit the newt.", b"")
    params = jax.jit(network.init)(jax.random.key(0), batch)
    assert jax.jit(network.apply)(params, batch).shape == (2, size)


def test_padding_stays_zero_whatever_its_parameter_says():
    network = MessageNetwork("lt_cnn_small")
    batch = messages(b"You die...")
    params = jax.jit(network.init)(jax.random.key(0), batch)

    def loss(params: Any) -> jax.Array:
        output: Any = network.apply(params, batch)
        return jnp.sum(output**2)

    gradient = jax.jit(jax.grad(loss))(params)["params"]["embedding"]
    assert not np.any(gradient[0])
    assert np.any(gradient[ord("d")])
    changed = jax.tree.map(lambda x: x, params)
    changed["params"]["embedding"] = params["params"]["embedding"].at[0].set(9.0)
    np.testing.assert_array_equal(jax.jit(network.apply)(changed, batch), jax.jit(network.apply)(params, batch))


def test_small_network_reads_128_characters():
    network = MessageNetwork("lt_cnn_small")
    batch = messages(b"a" * 128, b"a" * 128 + b"b" * 9, b"a" * 127 + b"b")
    output = jax.jit(network.apply)(jax.jit(network.init)(jax.random.key(0), batch), batch)
    np.testing.assert_array_equal(output[0], output[1])


def test_crop_is_centred_on_the_hero_and_empty_outside_the_map():
    glyphs = jnp.arange(1, 21 * 79 + 1).reshape(1, 21, 79)
    crop = crop_glyphs(jnp.concatenate([glyphs, glyphs]), jnp.asarray([[40, 10], [0, 20]]), 16)
    np.testing.assert_array_equal(crop[0], glyphs[0, 2:18, 32:48])
    assert crop[1, 8, 8] == glyphs[0, 20, 0]
    assert not np.any(crop[1, 9:])
    assert not np.any(crop[1, :, :8])
