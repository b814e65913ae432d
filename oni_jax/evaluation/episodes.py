"""What is kept of an episode that an agent was evaluated on, and which episodes those are."""

import dataclasses
from typing import NamedTuple

from oni_jax.config import EnvConfig
from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.envs.nethack.vector_env import ABORTED, DEATH, TASK_SUCCESSFUL, episode_seeds
from oni_jax.envs.registry import env_spec

NUM_SLOTS = 64  # games side by side; slot s plays the episodes s, s + 64, s + 128, ...
HELD_OUT = 1 << 128  # added to a seed. Training's are of 32 bits: no game of the one can be a game of the other

ENDS = {DEATH: "death", TASK_SUCCESSFUL: "goal", ABORTED: "step limit"}
ENGINE_FAILURE = "engine failure"  # the game was given up before the step limit
TERMINATION = "finished"  # by the rules of an environment that tells no more


class Episode(NamedTuple):
    """An episode played to its end.

    (root_env, max_episode_steps, evaluation seed, index) and `actions` fix it: a game of `nethack_seeds(seed, index)`
    that is given these actions one after another goes the same way, and ends in the same `stats`.
    """

    index: int  # counts the episodes of an evaluation from 0
    stats: dict[str, float]  # by the environment's names, EnvSpec.episode_stats; float32 numbers
    actions: bytes  # index into the task's actions of each step, in order: as many as stats["length"]
    end: str  # a value of ENDS, ENGINE_FAILURE or TERMINATION


def chosen_task(env: EnvConfig, root_env: str, max_episode_steps: int) -> EnvConfig:
    """A run's environment, but for what is asked for: a name, a number. Raises UserError: there is no such task."""
    env = dataclasses.replace(
        env, root_env=root_env or env.root_env, max_episode_steps=max_episode_steps or env.max_episode_steps
    )
    env_spec(env)
    return env


def evaluation_seed(seed: int) -> int:
    """The `seed` of `envs.registry.make_vector_env` with which slot s, its environment s, plays these episodes."""
    return HELD_OUT + seed


def nethack_seeds(seed: int, index: int) -> tuple[int, int]:
    """NetHack's two seeds, of the game and of what is only display, of episode `index` of an evaluation."""
    return episode_seeds(evaluation_seed(seed))(index % NUM_SLOTS, index // NUM_SLOTS)


def end_of(stats: dict[str, float], truncated: bool, max_episode_steps: int) -> str:
    """Why an episode ended, in a few words."""
    if "end_status" in stats:
        failed = truncated and stats["length"] < max_episode_steps
        return ENGINE_FAILURE if failed else ENDS[int(stats["end_status"])]
    return ENDS[ABORTED] if truncated else TERMINATION


def has_goal(root_env: str) -> bool:
    """Whether there is something to reach in an environment."""
    return root_env in TASKS and TASKS[root_env].goal is not None


def has_terminal(root_env: str) -> bool:
    """Whether a person sees an environment in a terminal; others in the words of its captions."""
    return root_env in TASKS


def succeeded(episode: Episode) -> bool:
    """Whether the goal was reached, in an environment that has one: it pays then, and never else."""
    return episode.stats["return"] > 0
