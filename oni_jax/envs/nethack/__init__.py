"""NetHack, as in the NetHack Learning Environment (NLE): tasks, environments, prompts and judge rules."""

import pathlib

from oni_jax.envs.base import Environment, Language, VectorEnv
from oni_jax.envs.nethack.display import DISPLAY, KEY_WORDS
from oni_jax.envs.nethack.native.layout import CannotStepError
from oni_jax.envs.nethack.native.vector_env import BUILT, NativeVectorEnv, why_not_built
from oni_jax.envs.nethack.tasks import EXTENDED_KEYS, TASKS
from oni_jax.envs.nethack.vector_env import (
    BLSTATS_NAMES,
    OBSERVATIONS,
    ON_REQUEST,
    NetHackVectorEnv,
    episode_seeds,
    nethack_spec,
)
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig, NetHackConfig
from oni_jax.types import EnvSpec

PYTHON = "python"  # `--stepper`


def _spec(config: EnvConfig) -> EnvSpec:
    settings = config.nethack
    if settings.engine == BUILT:
        if settings.stepper == PYTHON:
            raise UserError("--engine built: it is stepped in C alone, not by --stepper python")
        if reason := why_not_built():
            raise UserError(f"--engine built: {reason}")
    return nethack_spec(TASKS[config.root_env], OBSERVATIONS)


def _make(config: EnvConfig, spec: EnvSpec, num_envs: int, seed: int, first_index: int) -> VectorEnv:
    task, settings = TASKS[config.root_env], config.nethack
    arguments = task, num_envs, episode_seeds(seed), first_index, config.max_episode_steps, spec.observations, settings
    if settings.stepper == PYTHON:
        return NetHackVectorEnv(*arguments)
    try:
        return NativeVectorEnv(*arguments)
    except CannotStepError as reason:
        if settings.engine == BUILT:
            raise UserError(f"--engine built: {reason}") from None
        return NetHackVectorEnv(*arguments, why_python=str(reason))


LANGUAGE = Language(
    pathlib.Path(__file__).with_name("prompts"),
    "oni_jax.envs.nethack.judge_rules",
    actions=[KEY_WORDS[key] for key in EXTENDED_KEYS],  # the other tasks' keys are the first of these
    name="nethack",
    code={"blstats": BLSTATS_NAMES, "message": (), "chars": ()},
)
ENVIRONMENT = Environment(
    names=TASKS,
    make_spec=_spec,
    make=_make,
    on_request=ON_REQUEST,
    language=LANGUAGE,
    display=DISPLAY,
    settings=(NetHackConfig,),
    about="NetHack, by its score, by the depth reached (Staircase), or by finding the Oracle",
    random_play=pathlib.Path(__file__).with_name("random_play.json"),
)
