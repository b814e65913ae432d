"""Environments by name. A new family is one line of FAMILIES."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from oni_jax.config import EnvConfig, UserError
from oni_jax.envs import catch, memory, nethack, tasks
from oni_jax.envs.base import VectorEnv
from oni_jax.types import EnvSpec


class Family(NamedTuple):
    names: Collection[str]
    make_spec: Callable[[str, bool], EnvSpec]  # (name, with_glyphs)
    make_env: Callable[[EnvConfig, int, int, int, bool], VectorEnv]  # make_vector_env's arguments


def _nethack_spec(name: str, with_glyphs: bool) -> EnvSpec:
    return nethack.nethack_spec(tasks.TASKS[name], with_glyphs)


def _make_nethack(config: EnvConfig, num_envs: int, seed: int, first_index: int, with_glyphs: bool) -> VectorEnv:
    seeds = nethack.episode_seeds(seed)
    task = tasks.TASKS[config.root_env]
    return nethack.NetHackVectorEnv(
        task, num_envs, seeds, first_index, config.max_episode_steps, with_glyphs, config.view, config.share_code
    )


def _small(name: str, spec: EnvSpec, env_class: type[catch.CatchVectorEnv] | type[memory.MemoryVectorEnv]) -> Family:
    def make_spec(name: str, with_glyphs: bool) -> EnvSpec:
        if with_glyphs:
            raise UserError(f"{name} has no glyphs: use an encoder that needs none")
        return spec

    def make_env(config: EnvConfig, num_envs: int, seed: int, first_index: int, with_glyphs: bool) -> VectorEnv:
        make_spec(config.root_env, with_glyphs)
        return env_class(num_envs, seed, first_index, config.max_episode_steps)

    return Family((name,), make_spec, make_env)


FAMILIES = (
    Family(tasks.TASKS, _nethack_spec, _make_nethack),
    _small("Catch-v0", catch.SPEC, catch.CatchVectorEnv),
    _small("Memory-v0", memory.SPEC, memory.MemoryVectorEnv),
)


def env_spec(config: EnvConfig, with_glyphs: bool = False) -> EnvSpec:
    """What the environment's observations and actions are, without starting one. UserError: unknown name."""
    return _find_family(config.root_env).make_spec(config.root_env, with_glyphs)


def make_vector_env(
    config: EnvConfig, num_envs: int, seed: int, first_index: int, with_glyphs: bool = False
) -> VectorEnv:
    """`num_envs` environments, the first of them number `first_index` of all that share `seed`. UserError: see above.

    Args:
      config: the environment's name and its step limit.
      num_envs: N.
      seed: not negative.
      first_index: not negative.
      with_glyphs: whether the observations hold the map's glyphs.
    """
    return _find_family(config.root_env).make_env(config, num_envs, seed, first_index, with_glyphs)


def _find_family(name: str) -> Family:
    for family in FAMILIES:
        if name in family.names:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.names)
    raise UserError(f"unknown root_env {name!r}; known: {known}")
