"""Preference Transformer: what it makes of actions that are none of the environment's."""

import jax
import numpy as np

from oni_jax.envs.history import NO_ACTION
from oni_jax.envs.registry import env_spec
from oni_jax.rewards.bk.preference_model import make_network
from oni_jax.settings.worlds import EnvConfig
from tests.rewards.bk.preference_models import HORIZON, untrained


def test_action_out_of_range_is_read_as_none():
    spec, model = env_spec(EnvConfig(root_env="Catch-v0")), untrained("Catch-v0")
    network = make_network(model.settings, spec)
    states = {name: np.ones((1, HORIZON, *x.shape), x.dtype) for name, x in spec.observations.items()}
    times = np.arange(HORIZON, dtype=np.int32)[None]

    def values(action: int) -> np.ndarray:
        actions = np.full((1, HORIZON), action, np.int32)
        return np.asarray(jax.jit(network.apply)(model.params, states, actions, times).values)

    nothing = values(NO_ACTION)
    assert np.isfinite(nothing).all() and (values(spec.num_actions - 1) != nothing).any()
    for action in (spec.num_actions, 1000, -2):
        np.testing.assert_array_equal(values(action), nothing)
