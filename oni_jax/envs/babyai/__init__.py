"""BabyAI-Text, registered without importing JAX."""

import pathlib
from typing import TYPE_CHECKING

from oni_jax.envs.babyai.display import DISPLAY
from oni_jax.envs.babyai.levels import ACTION_WORDS, LEVELS, SPEC
from oni_jax.envs.base import Environment, Language, VectorEnv
from oni_jax.settings.worlds import BabyAIConfig, EnvConfig
from oni_jax.types import EnvSpec

if TYPE_CHECKING:
    from oni_jax.envs.device.base import DeviceEnv


def _device(config: EnvConfig) -> "DeviceEnv":
    # Imported here: JAX is needed where environments run, not where they are named
    from oni_jax.envs.babyai.env import make_env

    return make_env(config)


def _make(config: EnvConfig, spec: EnvSpec, num_envs: int, seed: int, first_index: int) -> VectorEnv:
    from oni_jax.envs.device.vector_env import DeviceVectorEnv

    return DeviceVectorEnv(_device(config), num_envs, seed, first_index, config.max_episode_steps, spec)


_LANGUAGE = Language(pathlib.Path(__file__).with_name("prompts"), f"{__name__}.judge_rules", ACTION_WORDS, "babyai")
# BK: the agent sees the image alone, so the direction is shown on request
ENVIRONMENT = Environment(
    tuple(LEVELS),
    lambda config: SPEC,
    _make,
    on_request=("direction",),
    device=_device,
    language=_LANGUAGE,
    display=DISPLAY,
    settings=(BabyAIConfig,),
    about="BabyAI-Text's rooms: go to an object, to two in turn, or pick one up",
    encoder="mlp_encoder",
    random_play=pathlib.Path(__file__).with_name("random_play.json"),
)
