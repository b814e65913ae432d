"""A plugin that registers a device environment, as users write them."""

from oni_jax.config import EnvConfig
from oni_jax.envs.base import Environment, VectorEnv
from oni_jax.envs.device.vector_env import DeviceVectorEnv
from oni_jax.envs.registry import register_environment
from oni_jax.types import EnvSpec
from tests.envs.device.signals_env import SignalsEnv

NAME = "Signals-v0"


def make(config: EnvConfig, spec: EnvSpec, num_envs: int, seed: int, first_index: int) -> VectorEnv:
    return DeviceVectorEnv(SignalsEnv(), num_envs, seed, first_index, config.max_episode_steps, spec)


register_environment(Environment((NAME,), lambda config: SignalsEnv.spec, make, device=lambda config: SignalsEnv()))
