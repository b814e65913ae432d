"""The policy's memory is brought up to date in place; what the learner may be reading is left alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.base import record_dtype
from oni_jax.networks.policy import PolicyOutput
from oni_jax.types import EnvSpec
from oni_jax.worlds.actors.policy_step import Calls, CoreStates, make_policy_step_fn


@pytest.mark.filterwarnings("error")  # it warns of buffers that could not be reused
def test_the_current_states_are_overwritten_and_the_initial_ones_are_not():
    def policy_apply(params, observations, state, is_first):
        return PolicyOutput(jnp.zeros((1, 1, 2)), jnp.zeros((1, 1))), state + params

    spec = EnvSpec({}, num_actions=2, has_captions=False, episode_stats=())
    record = record_dtype(spec)
    packed = np.zeros((1, record.itemsize), np.uint8)
    packed.view(record)["is_first"] = True
    states = CoreStates(jnp.ones((4, 3)), jnp.zeros((6, 3)), jnp.zeros((4, 3)))
    calls = Calls(np.array([1], np.int32), np.array([6], np.int32))
    step = make_policy_step_fn(policy_apply, spec, record, 1)
    _, after = step(*states, jnp.float32(2), np.int32(3), jax.random.key(0), np.uint32(0), packed, calls)
    assert states.current.is_deleted() and not states.initial.is_deleted()
    assert after.current[1, 0] == 3 and not np.any(after.initial)
    np.testing.assert_array_equal(after.ended[:, 0], [0, 1, 0, 0])
