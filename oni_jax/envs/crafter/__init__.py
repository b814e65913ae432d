"""Crafter and the forks of it that ELLM and BK play, registered without importing JAX."""

import pathlib
from typing import TYPE_CHECKING

from oni_jax.envs.base import Environment, Language, VectorEnv
from oni_jax.envs.crafter.display import DISPLAY
from oni_jax.envs.crafter.levels import VARIANTS, crafter_spec, with_exact_maps
from oni_jax.settings.worlds import CrafterConfig, EnvConfig
from oni_jax.types import EnvSpec

if TYPE_CHECKING:
    from oni_jax.envs.device.base import DeviceEnv


def _device(config: EnvConfig) -> "DeviceEnv":
    # Imported here: JAX is needed where environments run, not where they are named
    from oni_jax.envs.crafter.env import make_env
    from oni_jax.envs.crafter.tasks import with_task

    return with_task(make_env(config), config.crafter)


def _make(config: EnvConfig, spec: EnvSpec, num_envs: int, seed: int, first_index: int) -> VectorEnv:
    from oni_jax.envs.device.vector_env import DeviceVectorEnv

    return DeviceVectorEnv(
        _device(with_exact_maps(config)), num_envs, seed, first_index, config.max_episode_steps, spec
    )


_LANGUAGE = Language(pathlib.Path(__file__).with_name("prompts"), f"{__name__}.judge_rules", name="crafter")
ENVIRONMENT = Environment(
    tuple(VARIANTS),
    crafter_spec,
    _make,
    device=_device,
    labels_events=True,
    language=_LANGUAGE,
    display=DISPLAY,
    settings=(CrafterConfig,),
    about="Crafter: an open world with 22 achievements; CrafterTextEnv-v1 has ELLM's actions",
    random_play=pathlib.Path(__file__).with_name("random_play.json"),
)
