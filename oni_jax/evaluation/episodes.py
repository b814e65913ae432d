"""Episodes of an evaluation: their seeds, actions and outcomes."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.envs.nethack.vector_env import ABORTED, DEATH, TASK_SUCCESSFUL, episode_seeds
from oni_jax.envs.registry import env_spec, step_limit
from oni_jax.settings.worlds import EnvConfig

SUCCESS = "success"  # statistic of an environment whose tasks have a goal: 1 where it was reached, else 0
GROUP_SIZE = 16  # environments whose actions are chosen together
NUM_SLOTS = 64  # environments side by side; slot s plays the episodes s, s + 64, s + 128, ...
HELD_OUT = 1 << 128  # added to a seed. Training's have 32 bits: no episode occurs in both

ENDS = {DEATH: "death", TASK_SUCCESSFUL: "goal", ABORTED: "step limit"}
ENGINE_FAILURE = "engine failure"  # the game was truncated before the step limit
TERMINATION = "finished"  # end by the rules of an environment without `end_status`


class Episode(NamedTuple):
    """A finished episode.

    (root_env, max_episode_steps, evaluation seed, index) and `actions` determine it: a game of
    `nethack_seeds(seed, index)` that takes these actions passes through the same states, and has the same `stats`.
    """

    index: int  # counts the episodes of an evaluation from 0
    stats: dict[str, float]  # keyed by the environment's names, EnvSpec.episode_stats; float32 numbers
    actions: bytes  # index into the task's actions of each step, in order: as many as stats["length"]
    end: str  # a value of ENDS, ENGINE_FAILURE or TERMINATION
    intrinsic_returns: Mapping[str, float] = {}  # keyed by label of the reward, before its coefficient; float32 numbers


def chosen_task(env: EnvConfig, root_env: str, max_episode_steps: int) -> EnvConfig:
    """Returns a run's environment with the requested task, and the step limit that its episodes have.

    Raises:
        UserError: there is no such task.
    """
    env = dataclasses.replace(
        env, root_env=root_env or env.root_env, max_episode_steps=max_episode_steps or env.max_episode_steps
    )
    env_spec(env)
    return dataclasses.replace(env, max_episode_steps=step_limit(env))


def evaluation_seed(seed: int) -> int:
    """Returns the `seed` for `envs.registry.make_vector_env`, whose environment s is then slot s."""
    return HELD_OUT + seed


def nethack_seeds(seed: int, index: int) -> tuple[int, int]:
    """Returns NetHack's two seeds, of the game and of its display, for episode `index` of an evaluation."""
    return episode_seeds(evaluation_seed(seed))(index % NUM_SLOTS, index // NUM_SLOTS)


def end_of(stats: dict[str, float], truncated: bool, max_episode_steps: int, last_reward: float) -> str:
    """Returns the reason for an episode's end, in a few words. `last_reward`: of the step that ended it."""
    if "end_status" in stats:
        failed = truncated and stats["length"] < max_episode_steps
        return ENGINE_FAILURE if failed else ENDS[int(stats["end_status"])]
    if stats.get(SUCCESS, 0) > 0 and last_reward > 0:  # some worlds truncate an episode that reaches its goal
        return ENDS[TASK_SUCCESSFUL]
    return ENDS[ABORTED] if truncated else TERMINATION


def succeeded(root_env: str, episode: Episode) -> bool | None:
    """Returns whether the task's goal was reached; None for a task without one."""
    if SUCCESS in episode.stats:
        return episode.stats[SUCCESS] > 0
    has_goal = root_env in TASKS and TASKS[root_env].goal is not None
    return episode.stats["return"] > 0 if has_goal else None  # nothing but its goal is rewarded in such a task
