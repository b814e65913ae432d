"""BabyAI-Text, registered without importing JAX."""

from oni_jax.config import EnvConfig
from oni_jax.envs.base import Environment, VectorEnv
from oni_jax.envs.device.babyai.levels import LEVELS, SPEC
from oni_jax.types import EnvSpec


def _make(config: EnvConfig, spec: EnvSpec, num_envs: int, seed: int, first_index: int) -> VectorEnv:
    # Imported here: JAX is needed where environments run, not where they are named
    from oni_jax.envs.device.babyai.env import BabyAI
    from oni_jax.envs.device.vector_env import DeviceVectorEnv

    env = BabyAI(LEVELS[config.root_env])
    return DeviceVectorEnv(env, num_envs, seed, first_index, config.max_episode_steps, spec)


# BK: the agent sees the image alone, so the direction is shown on request
ENVIRONMENT = Environment(tuple(LEVELS), lambda name: SPEC, _make, on_request=("direction",))
