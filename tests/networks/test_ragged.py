"""Cut messages give what padded ones give, forward and backward, in whatever order and number they come."""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.networks import cpu, ragged
from oni_jax.networks.messages import ARCHITECTURES, MessageNetwork

SIZES = (0, 1, 5, 27, 47, 48, 49, 79, 80, 81, 128, 200, 255, 256)


def messages_of(sizes, rng):
    messages = np.zeros((len(sizes), 256), np.uint8)
    for row, size in zip(messages, sizes):
        row[:size] = rng.integers(1, 256, size)
    return messages


@pytest.fixture(scope="module", params=ARCHITECTURES)
def network(request):
    network = MessageNetwork(request.param)
    return network, jax.jit(network.init)(jax.random.key(0), np.zeros((1, 256), np.uint8))


@pytest.mark.parametrize(
    "length", [1, 48, 128, 255, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 80, 127))]
)
def test_a_cut_message_is_a_padded_one(network, length):
    module, params = network
    messages = messages_of([size for size in SIZES if size <= length], np.random.default_rng(1))
    whole, cut = jax.jit(module.apply)(params, messages), jax.jit(module.apply)(params, messages[:, :length])
    np.testing.assert_allclose(cut, whole, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def outputs_and_gradients():
    """(ragged or not) -> a jitted function of messages and weights of their outputs."""
    module = MessageNetwork("lt_cnn_small")
    params = jax.jit(module.init)(jax.random.key(0), np.zeros((1, 256), np.uint8))

    def total(params, messages, used, weights, cut):
        def fn(messages):
            return cast(jax.Array, module.apply(params, messages))

        outputs = ragged.map_messages(fn, messages, used) if cut else jnp.where(used[:, None], fn(messages), 0)
        return jnp.sum(outputs * weights), outputs

    run = jax.jit(jax.value_and_grad(total, has_aux=True), static_argnums=4)
    return lambda *args: run(params, *args)


@pytest.mark.parametrize("used_fraction", [1.0, 0.3, 0.0])
def test_rows_come_back_in_their_places_with_their_gradients(outputs_and_gradients, used_fraction, monkeypatch):
    monkeypatch.setattr(ragged, "CHUNK_SIZE", 4)  # so that 14 messages are several chunks, one of them partly filled
    rng = np.random.default_rng(2)
    messages, used = messages_of(rng.permutation(SIZES), rng), rng.random(len(SIZES)) < used_fraction
    arguments = messages, used, rng.normal(size=(len(SIZES), 32)).astype(np.float32)
    (_, expected), expected_grads = outputs_and_gradients(*arguments, False)
    (_, outputs), grads = outputs_and_gradients(*arguments, True)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
    assert not np.asarray(outputs)[~used].any()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), grads, expected_grads)


def test_lengths_end_at_the_last_byte_that_is_not_zero():
    messages = np.zeros((3, 256), np.uint8)
    messages[1, :3] = 1, 0, 1
    messages[2, 255] = 7
    assert ragged.message_lengths(jnp.asarray(messages)).tolist() == [0, 3, 256]


@pytest.mark.parametrize("platform, num_unique, num_chunks", [("cpu", 3, 1), ("cpu", 100, 2), ("cuda", 100, 1)])
def test_equal_messages_are_computed_once(monkeypatch, platform, num_unique, num_chunks):
    calls = []

    def fn(messages):
        jax.debug.callback(lambda rows: calls.append(np.asarray(rows)), messages[:, 0])
        return messages[:, 0].astype(jnp.float32)

    messages = np.zeros((200, 256), np.uint8)
    ids = np.arange(200) % num_unique
    messages[:, 0] = 10 + ids
    monkeypatch.setattr(cpu, "used", platform == "cpu")
    outputs = ragged.map_unique_messages(fn, jnp.asarray(messages), jnp.asarray(ids))
    jax.effects_barrier()
    np.testing.assert_array_equal(outputs, messages[:, 0])
    assert len(calls) == num_chunks  # the others held nothing
