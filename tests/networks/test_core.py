"""The recurrent cells against NumPy; episodes don't reach into each other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.networks.core import RecurrentCore

NUM_STEPS, BATCH, FEATURES, HIDDEN = 5, 3, 4, 6
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(NUM_STEPS, BATCH, FEATURES)).astype(np.float32)
NEVER = np.zeros((NUM_STEPS, BATCH), bool)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(params, x, h):
    """r = s(W_r x + U_r h + b_r), z alike, n = tanh(W_n x + b_n + r (U_n h + c)), h' = (1 - z) n + z h."""
    (w_r, w_z, w_n), (u_r, u_z, u_n), (b_r, b_z, b_n) = (
        np.split(params[name], 3, axis=-1) for name in ("input_kernel", "hidden_kernel", "input_bias")
    )
    r = sigmoid(x @ w_r + h @ u_r + b_r)
    z = sigmoid(x @ w_z + h @ u_z + b_z)
    n = np.tanh(x @ w_n + b_n + r * (h @ u_n + params["hidden_new_bias"]))
    return ((1 - z) * n + z * h,)


def lstm(params, x, h, c):
    """i, f, o sigmoids, g a tanh; c' = f c + i g, h' = o tanh(c')."""
    gates = x @ params["input_kernel"] + h @ params["hidden_kernel"] + params["input_bias"]
    i, f, g, o = np.split(gates, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


REFERENCES = {"gru": gru, "lstm": lstm}


def build(rnn_type, num_layers=1):
    core = RecurrentCore(rnn_type, HIDDEN, num_layers)
    state = jax.tree.map(lambda x: RNG.normal(size=x.shape).astype(np.float32), core.initial_state(BATCH))
    params: Any = core.init(jax.random.key(0), INPUTS, state, NEVER)
    return core, jax.tree.map(lambda x: 3 * x, params), state


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("rnn_type", REFERENCES)
def test_equals_numpy(rnn_type, num_layers):
    core, params, state = build(rnn_type, num_layers)
    is_first = RNG.random(NEVER.shape) < 0.3
    outputs, last_state = jax.jit(core.apply)(params, INPUTS, state, is_first)
    expected = INPUTS.astype(np.float64)
    for i in range(num_layers):
        weights = {name: np.asarray(x, np.float64) for name, x in params["params"][f"layer_{i}"].items()}
        layer_state, layer_outputs = state[i], []
        for x, first in zip(expected, is_first):
            layer_state = tuple(np.where(first[:, None], 0.0, part) for part in layer_state)
            layer_state = REFERENCES[rnn_type](weights, x, *layer_state)
            layer_outputs.append(layer_state[0])
        expected = np.stack(layer_outputs)
        for ours, theirs in zip(last_state[i], layer_state, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rnn_type", REFERENCES)
def test_reset_clears_the_memory(rnn_type):
    core, params, state = build(rnn_type, num_layers=2)
    is_first = NEVER.copy()
    is_first[2, 1] = True
    apply = jax.jit(core.apply)
    outputs, last_state = apply(params, INPUTS, state, is_first)
    inputs = INPUTS.copy()
    inputs[:2] += 1
    changed, changed_last = apply(params, inputs, jax.tree.map(lambda x: -x, state), is_first)
    assert (changed[:2] != outputs[:2]).all()
    np.testing.assert_array_equal(changed[2:, 1], outputs[2:, 1])
    assert (changed[2:, 0] != outputs[2:, 0]).any()  # this one was not reset
    for one, other in zip(jax.tree.leaves(last_state), jax.tree.leaves(changed_last)):
        np.testing.assert_array_equal(one[1], other[1])


def test_no_gradient_flows_back_over_a_reset():
    core, params, state = build("gru")
    is_first = NEVER.copy()
    is_first[2, 1] = True
    gradient = jax.grad(lambda x: jnp.sum(core.apply(params, x, state, is_first)[0][3] ** 2))(INPUTS)
    assert not np.any(gradient[:2, 1]) and np.any(gradient[:2, 0]) and np.any(gradient[2, 1])


@pytest.mark.parametrize(("rnn_type", "num_states"), [("gru", 1), ("lstm", 2)])
def test_initial_state_is_zero(rnn_type, num_states):
    state = RecurrentCore(rnn_type, HIDDEN, 2).initial_state(BATCH)
    assert jax.tree.map(np.shape, state) == (((BATCH, HIDDEN),) * num_states,) * 2
    assert not any(np.any(x) for x in jax.tree.leaves(state))


def test_input_passes_a_core_without_layers():
    core = RecurrentCore("gru", HIDDEN, 0)
    outputs, state = core.apply({}, INPUTS, (), NEVER)
    np.testing.assert_array_equal(outputs, INPUTS)
    assert state == ()
