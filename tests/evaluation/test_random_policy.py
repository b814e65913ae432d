"""The random policy's episodes against a plain loop over NLE, which shares no code with ours."""

import functools

import numpy as np
import pytest

from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.evaluation.agents import RandomAgent
from oni_jax.evaluation.episodes import evaluation_seed, nethack_seeds
from oni_jax.evaluation.playing import play_episodes
from oni_jax.settings.worlds import EnvConfig
from tests.evaluation.plain_game import PlainGame

SEED = 3
QUICK = ("NetHackScore-v1", "NetHackStaircaseExtendedActions-v1")
TOLERANCE = 4.0  # standard errors of the difference of two means


def evaluated(root_env: str, num_episodes: int, max_episode_steps: int, num_workers: int = 0):
    env = EnvConfig(root_env=root_env, max_episode_steps=max_episode_steps)
    spec = env_spec(env)
    make_env = functools.partial(make_vector_env, env, seed=evaluation_seed(SEED))
    agent = RandomAgent(spec.num_actions, SEED)
    return play_episodes(make_env, spec, agent, num_episodes, max_episode_steps, num_workers)


def compare(root_env: str, num_episodes: int, max_episode_steps: int, num_workers: int = 0) -> None:
    """Our episodes, given to the plain loop, end the same; and those that it plays by itself are of the same kind."""
    episodes = evaluated(root_env, num_episodes, max_episode_steps, num_workers)
    plain = PlainGame(root_env, max_episode_steps)
    for episode in episodes[:16]:
        actions = iter(episode.actions)
        stats = plain.play(*nethack_seeds(SEED, episode.index), actions)
        assert next(actions, None) is None
        assert stats.pop("return") == pytest.approx(episode.stats["return"], rel=1e-6, abs=1e-6)
        assert stats == {name: value for name, value in episode.stats.items() if name != "return"}

    rng = np.random.default_rng(11)
    choices = iter(lambda: int(rng.integers(len(plain.keys))), None)
    plain_stats = [
        plain.play(int(core), int(display), choices) for core, display in rng.integers(2**62, size=(num_episodes, 2))
    ]
    plain.close()
    for name in plain_stats[0]:
        theirs, ours = (np.array([x[name] for x in rows], float) for rows in (plain_stats, [e.stats for e in episodes]))
        error = np.sqrt((theirs.var(ddof=1) + ours.var(ddof=1)) / num_episodes)
        assert abs(theirs.mean() - ours.mean()) <= TOLERANCE * error, name


@pytest.mark.parametrize("root_env", QUICK)
def test_a_plain_loop_agrees(root_env):
    compare(root_env, 48, 100)


@pytest.mark.slow
@pytest.mark.parametrize("root_env", TASKS)
def test_a_plain_loop_agrees_on_every_task(root_env):
    compare(root_env, 128, 1000, num_workers=4)
