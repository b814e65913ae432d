"""Craftax-Classic's symbolic version as an environment of ours. `craftax` is imported when it is built.

A plugin: `python -m launch.train --plugin benchmarks.peers.craftax_classic --root_env Craftax-Classic-Symbolic-v1`.
"""

from typing import Any

from oni_jax.envs.device.gymnax_env import gymnax_environment
from oni_jax.envs.registry import register_environment

NAME = "Craftax-Classic-Symbolic-v1"


def make() -> tuple[Any, Any]:
    """Returns the environment, without its auto-reset, and its parameters."""
    from craftax.craftax_env import make_craftax_env_from_name

    env = make_craftax_env_from_name(NAME, auto_reset=False)
    return env, env.default_params


register_environment(gymnax_environment(NAME, make))
