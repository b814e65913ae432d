"""A plugin that registers a device environment with goals, and what suggests them, as users write them."""

import pathlib

from oni_jax.config import EnvConfig
from oni_jax.envs.base import Environment, Language, VectorEnv
from oni_jax.envs.device.vector_env import DeviceVectorEnv
from oni_jax.envs.registry import register_environment
from oni_jax.types import EnvSpec
from tests.envs.device.signals_env import SignalsEnv

NAME = "Signals-v0"


def make(config: EnvConfig, spec: EnvSpec, num_envs: int, seed: int, first_index: int) -> VectorEnv:
    return DeviceVectorEnv(SignalsEnv(), num_envs, seed, first_index, config.max_episode_steps, spec)


LANGUAGE = Language(pathlib.Path(__file__).with_name("signals_prompts"), "tests.support.signals_rules")
register_environment(
    Environment((NAME,), lambda config: SignalsEnv.spec, make, device=lambda config: SignalsEnv(), language=LANGUAGE)
)
