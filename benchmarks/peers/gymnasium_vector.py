"""Gymnasium's vector environments over NLE's: all games in one process, or a process per game with shared memory."""

import functools
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from benchmarks import harness
from benchmarks.peers.nle_env import make_env
from oni_jax.envs.nethack.tasks import Task, nethack

OBSERVATION_KEYS = ("blstats", "message", "glyphs", "tty_chars", "tty_colors")

VECTORS: dict[str, Callable[[list], Any]] = {
    "gymnasium_sync": gymnasium.vector.SyncVectorEnv,
    "gymnasium_async": functools.partial(gymnasium.vector.AsyncVectorEnv, shared_memory=True, context="spawn"),
}


def measure(task: Task, num_games: int, num_steps: int, repeats: int) -> dict[str, Any]:
    """Measures environment steps a second and turns per step of both, in turn."""
    sides = {name: functools.partial(_measure_once, make, task, num_games, num_steps) for name, make in VECTORS.items()}
    return {
        name: {
            "num_games": num_games,
            "env_steps_per_sec": harness.spread([rate for rate, _ in own]),
            "turns_per_step": own[-1][1],
        }
        for name, own in harness.alternate(sides, repeats).items()
    }


def _measure_once(make: Callable[[list], Any], task: Task, num_games: int, num_steps: int) -> tuple[float, float]:
    """Measures (environment steps a second, turns per step), with resets, each of which takes a step of its own."""
    envs = make([functools.partial(make_env, task, OBSERVATION_KEYS)] * num_games)
    actions = np.random.default_rng(0).integers(len(task.keys), size=(num_steps, num_games))
    envs.reset(seed=0)
    turns = np.ones(num_games, np.int64)
    total_turns = 0
    start = time.perf_counter()
    for row in actions:
        observations, _, _, _, _ = envs.step(row)
        after = observations["blstats"][:, nethack.NLE_BL_TIME]
        total_turns += int(np.maximum(after - turns, 0).sum())  # negative where an episode ends
        turns = after.copy()
    secs = time.perf_counter() - start
    envs.close()
    return num_steps * num_games / secs, total_turns / (num_steps * num_games)
