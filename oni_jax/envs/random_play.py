"""Mean returns of random play, which `python -m benchmarks.random_play` measures and the environments keep."""

import dataclasses
import json
import os
from typing import Any, NamedTuple

from oni_jax.envs.registry import ENVIRONMENTS
from oni_jax.settings.worlds import EnvConfig

# Settings that change no reward and no end of an episode; of the groups, all or these.
ANY = ("plugin", "caption", "nethack", "goals")
ANY_OF_CRAFTER = ("view", "textures", "maps", "map_stock")


class RandomPlay(NamedTuple):
    """Result of random actions in a task."""

    mean_return: float
    num_episodes: int
    seed: int  # seed of `launch.evaluate`, whose episodes they are


def random_play(config: EnvConfig) -> RandomPlay | None:
    """Returns what random play achieves in a task; None: nobody has measured it with these settings."""
    path = next((environment.random_play for environment in ENVIRONMENTS if config.root_env in environment.names), "")
    if not path or _as_measured(config) != EnvConfig(root_env=config.root_env):
        return None
    known = read_random_play(path).get(config.root_env)
    return RandomPlay(**known) if known else None


def read_random_play(path: str | os.PathLike) -> dict[str, dict[str, Any]]:
    """Returns the fields of a RandomPlay, by task; {}: there is no such file."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def beside_random_play(config: EnvConfig, mean_return: float | None, num_episodes: int) -> str:
    """Returns a line of a run's mean return and random play's; empty where one of them is unknown."""
    at_random = random_play(config)
    if at_random is None or mean_return is None:
        return ""
    return (
        f"return {mean_return:.4g}, mean of the last {num_episodes:,} episodes; random play's is "
        f"{at_random.mean_return:.4g}, mean of {at_random.num_episodes:,} episodes of seed {at_random.seed}"
    )


def _as_measured(config: EnvConfig) -> EnvConfig:
    """Returns the settings, with the defaults of those that change no return."""
    default = EnvConfig()
    crafter = dataclasses.replace(config.crafter, **{name: getattr(default.crafter, name) for name in ANY_OF_CRAFTER})
    return dataclasses.replace(config, crafter=crafter, **{name: getattr(default, name) for name in ANY})
