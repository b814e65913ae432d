"""The policy's memory is brought up to date in place; what the learner may be reading is left alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.inference.policy_step import Calls, CoreStates, jit_policy_step


@pytest.mark.filterwarnings("error")  # of buffers that could not be reused
def test_the_current_states_are_overwritten_and_the_initial_ones_are_not():
    def policy_step(params, key, call, states, packed, calls):
        del key, call, packed
        current = states.current.at[calls.units].add(params)
        return jnp.sum(current), CoreStates(current, states.initial.at[calls.starting_slots].set(1.0, mode="drop"))

    states = CoreStates(jnp.zeros((4, 3)), jnp.zeros((6, 3)))
    calls = Calls(np.array([1], np.int32), np.array([6], np.int32))
    step = jit_policy_step(policy_step)
    _, after = step(jnp.float32(2), jax.random.key(0), np.uint32(0), states, np.zeros(1, np.uint8), calls)
    assert states.current.is_deleted() and not states.initial.is_deleted()
    assert after.current[1, 0] == 2 and not np.any(after.initial)
