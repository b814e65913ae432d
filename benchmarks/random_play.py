"""Mean returns of random play in every task, as the environments keep them (`oni_jax/envs/random_play.py`).

python -m benchmarks.random_play                           # all of them: minutes
python -m benchmarks.random_play Catch-v0 Crafter-v1       # these tasks alone
"""

import json
from collections.abc import Sequence

import numpy as np
from absl import app

from benchmarks.harness import run_app
from oni_jax.envs.random_play import RandomPlay, read_random_play
from oni_jax.envs.registry import ENVIRONMENTS, environment_names
from oni_jax.evaluation.config import RANDOM, EvaluationConfig
from oni_jax.evaluation.players import chosen_players, evaluated_task
from oni_jax.evaluation.program import play

NUM_EPISODES, SEED = 256, 1  # the seed of environments and actions, as in launch.evaluate


def mean_return(root_env: str, num_episodes: int, seed: int) -> float:
    """Plays a task at random. Returns the mean return."""
    config = EvaluationConfig(policy=RANDOM, root_env=root_env, episodes=num_episodes, seed=seed)
    (player,) = chosen_players(config, evaluated_task(config), None, config.checkpoint)
    played = play(config, player)
    if len(played.episodes) < num_episodes:
        raise RuntimeError(f"{root_env}: {len(played.episodes)} of {num_episodes} episodes ({played.interrupted})")
    return round(float(np.mean([episode.stats["return"] for episode in played.episodes])), 4)


def measure(names: Sequence[str], num_episodes: int, seed: int) -> None:
    """Measures tasks, and writes each result where its environment keeps it."""
    for name in names:
        found = RandomPlay(mean_return(name, num_episodes, seed), num_episodes, seed)
        print(f"{name}: {found.mean_return:g}", flush=True)
        path = next(environment.random_play for environment in ENVIRONMENTS if name in environment.names)
        measured = {**read_random_play(path), name: found._asdict()}
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(dict(sorted(measured.items())), indent=2) + "\n")


def main(argv: Sequence[str]) -> None:
    asked = argv[1:] or environment_names()
    if unknown := {*asked} - {*environment_names()}:
        raise app.UsageError(f"no such task: {', '.join(sorted(unknown))}")
    measure(asked, NUM_EPISODES, SEED)


if __name__ == "__main__":
    run_app(main, takes_words=True)
