"""Preference Transformers without training, of any environment."""

import os

import jax
import jax.numpy as jnp

from oni_jax.envs.registry import env_spec
from oni_jax.rewards.bk.preference_model import (
    PreferenceModel,
    PreferenceSettings,
    make_network,
    names_read,
    save_preference_model,
)
from oni_jax.settings.worlds import EnvConfig

HORIZON = 2


def untrained(root_env: str, encoder: str = "mlp_encoder", size: int = 8) -> PreferenceModel:
    spec = env_spec(EnvConfig(root_env=root_env))
    settings = PreferenceSettings(encoder, size, spec.num_actions, HORIZON, width=8, feed_forward=16, max_time=20)
    shapes = {name: spec.observations[name] for name in names_read(settings, spec)}
    states = {name: jnp.zeros((1, HORIZON, *x.shape), x.dtype) for name, x in shapes.items()}
    steps = jnp.zeros((1, HORIZON), jnp.int32)
    params = jax.jit(make_network(settings, spec).init)(jax.random.key(0), states, steps, steps)
    return PreferenceModel(settings, params)


def write_untrained(folder: str, root_env: str) -> str:
    """Writes a model for an environment, once. Returns its folder."""
    path = os.path.join(folder, f"preferences-{root_env}")
    if not os.path.exists(path):
        save_preference_model(path, 1, untrained(root_env), {})
    return path
