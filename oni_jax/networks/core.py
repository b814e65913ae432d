"""Recurrent cores, unrolled over T steps and reset where an episode starts."""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import linen as nn

from oni_jax.networks.initializers import summed, uniform
from oni_jax.networks.precision import add_bias
from oni_jax.types import Array, PyTree

# (products with the input and with the state [B, G], a cell's state) -> next state, whose first leaf is the output.
GateFn = Callable[[Array, Array, PyTree], PyTree]


def gru_gates(inputs: Array, hidden: Array, state: tuple[Array]) -> tuple[Array]:
    """The GRU of Cho et al. (2014) in the form of flax and PyTorch; gates in the order reset, update, new."""
    reset_x, update_x, new_x = jnp.split(inputs, 3, axis=-1)
    reset_h, update_h, new_h = jnp.split(hidden, 3, axis=-1)
    update = nn.sigmoid(update_x + update_h)
    new = nn.tanh(new_x + nn.sigmoid(reset_x + reset_h) * new_h)
    return ((1 - update) * new + update * state[0],)


def lstm_gates(inputs: Array, hidden: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
    """The LSTM of Hochreiter & Schmidhuber (1997) with forget gates; order input, forget, cell, output."""
    i, f, g, o = jnp.split(inputs + hidden, 4, axis=-1)
    cell = nn.sigmoid(f) * state[1] + nn.sigmoid(i) * nn.tanh(g)
    return nn.sigmoid(o) * nn.tanh(cell), cell


class Cell(NamedTuple):
    gates: GateFn
    num_gates: int
    num_merged: int  # the first gates, whose input and state biases are merged
    num_states: int


CELLS = {"gru": Cell(gru_gates, 3, 2, 1), "lstm": Cell(lstm_gates, 4, 4, 2)}


class RecurrentLayer(nn.Module):
    """One layer. The inputs' product with the kernel is computed for all T steps at once, the state's in the scan.

    Products are computed in the inputs' type, gates and state in the state's: in few bits it would stop changing.
    """

    rnn_type: str
    hidden_size: int

    @nn.compact
    def __call__(self, inputs: Array, state: PyTree, is_first: Array) -> tuple[Array, PyTree]:
        """inputs [T, B, D], state leaves [B, H], is_first [T, B] -> outputs [T, B, H], last state."""
        cell = CELLS[self.rnn_type]
        width, init = cell.num_gates * self.hidden_size, uniform(self.hidden_size)
        kernel = self.param("input_kernel", init, (inputs.shape[-1], width))
        # ONI: one bias where the published cells sum two; the same function and initial scale, but under Adam it
        # learns half as fast as their sum.
        bias = self.param("input_bias", summed(init, cell.num_merged * self.hidden_size), (width,))
        hidden_kernel = self.param("hidden_kernel", init, (self.hidden_size, width))
        hidden_bias = jnp.zeros((width,))
        if self.rnn_type == "gru":
            new_bias = self.param("hidden_new_bias", init, (self.hidden_size,))
            hidden_bias = hidden_bias.at[-self.hidden_size :].set(new_bias)

        def step(state: PyTree, step_inputs: tuple[Array, Array]) -> tuple[PyTree, Array]:
            gate_inputs, first = step_inputs
            state = jax.tree.map(lambda x: jnp.where(first[:, None], 0.0, x), state)
            # Cast here, so that the kernel's gradient is summed over the steps in float32.
            hidden = state[0].astype(inputs.dtype) @ hidden_kernel.astype(inputs.dtype)
            wide = state[0].dtype
            state = cell.gates(gate_inputs.astype(wide), hidden.astype(wide) + hidden_bias, state)
            return state, state[0].astype(inputs.dtype)

        gate_inputs = add_bias(inputs @ kernel.astype(inputs.dtype), bias)
        state, outputs = jax.lax.scan(step, state, (gate_inputs, is_first))
        return outputs, state


class RecurrentCore(nn.Module):
    """Stacked layers; without any, the identity."""

    rnn_type: str
    hidden_size: int
    num_layers: int

    def initial_state(self, batch_size: int) -> PyTree:
        """Returns zeros; a tuple of layers, each a tuple of [B, H]."""
        num_states = CELLS[self.rnn_type].num_states
        return tuple(
            tuple(jnp.zeros((batch_size, self.hidden_size)) for _ in range(num_states)) for _ in range(self.num_layers)
        )

    @nn.compact
    def __call__(self, inputs: Array, state: PyTree, is_first: Array) -> tuple[Array, PyTree]:
        """inputs [T, B, D], is_first [T, B] -> outputs [T, B, H], last state."""
        chex.assert_rank([inputs, is_first], [3, 2])
        last_states = []
        for i in range(self.num_layers):
            layer = RecurrentLayer(self.rnn_type, self.hidden_size, name=f"layer_{i}")
            inputs, last_state = layer(inputs, state[i], is_first)
            last_states.append(last_state)
        return inputs, tuple(last_states)
