"""Properties of a reward type before it is built. Without JAX, which takes seconds to import."""

import functools
import importlib
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oni_jax.host.run_files import trained_at
from oni_jax.settings.config import Config

if TYPE_CHECKING:  # they import JAX
    from oni_jax.rewards.base import Reward
    from oni_jax.rewards.oni.reward_model import RewardModel
    from oni_jax.rewards.registry import RewardContext


class RewardType(NamedTuple):
    """Properties of a reward type that are known before it is built."""

    make: Callable[["RewardContext"], "Reward"]  # UserError: unusable settings or files
    query: str = ""  # kind of query that the LLM is asked; empty: nothing
    asks: Callable[[Config], bool] = lambda config: True  # True if it asks with these settings
    learns_answers: Callable[[Config], bool] = lambda config: False  # its model knows how sure it is of others
    threshold: float | None = None  # the default of eps_threshold_quantile; None: it has none
    soft: bool = False  # supports llm_reward_value=probability
    of_events: bool = False  # pays for what actions did, where the environment labels that; see `--caption`
    pays_goals: bool = False  # reads the goals that `--goal_suggester` suggests
    by_goal: bool = False  # pays by a goal of --goal_key, so that one agent can have several
    needs: str = ""  # the setting that names its file or folder
    may_need: tuple[str, ...] = ()  # others
    settings: tuple[type, ...] = ()  # sections of RewardConfig that only such types read; a plugin's become flags
    # Names of the observations that it reads beside the captions. UserError: the model's folder can't be read.
    observations: Callable[[Config], Collection[str]] = lambda config: ()
    check: Callable[[Config], None] = lambda config: None  # check of the settings, without building; raises UserError
    about: str = ""  # a line for --help llm_reward_type


def in_module(module: str, function: str) -> Callable[..., Any]:
    """Returns a function of a module of this folder, imported at its call: importing JAX takes seconds."""
    return lambda *args: getattr(importlib.import_module(f"oni_jax.rewards.{module}"), function)(*args)


def trained_model(folder: str) -> "RewardModel":
    """Reads the model that launch.train_reward wrote. Raises UserError: it can't be read."""
    return _trained_model(folder, trained_at(folder))


@functools.lru_cache(maxsize=1)  # read for its observations, then for the model itself
def _trained_model(folder: str, saved_at: int) -> "RewardModel":
    from oni_jax.rewards.oni.reward_model import load_reward_model

    return load_reward_model(folder)


def reward_labels(names: Sequence[str]) -> tuple[str, ...]:
    """Returns unique labels of rewards, for metrics and saved arrays: their types, numbered from the second."""
    labels: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        labels.append(next(label for label in itertools.chain([name], numbered) if label not in labels))
    return tuple(labels)
