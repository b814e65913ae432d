"""Lines about an evaluation say how far it is, and an honest estimate of the time left."""

import functools

import gymnasium
import pytest

from oni_jax.envs import registry
from oni_jax.envs.gymnasium_env import gymnasium_environment
from oni_jax.envs.registry import env_spec, make_vector_env, step_limit
from oni_jax.evaluation.agents import RandomAgent
from oni_jax.evaluation.episodes import chosen_task, evaluation_seed
from oni_jax.evaluation.playing import play_episodes
from oni_jax.evaluation.progress import STARTING, Progress
from oni_jax.settings.worlds import EnvConfig


def lines(*counts: tuple[int, int], num_episodes: int = 64, limit: int = 400) -> list[str]:
    """The lines of every ten seconds, for ended episodes and steps at each."""
    progress = Progress(num_episodes, limit, 0.0)
    return [progress.line(ended, steps, 10.0 * i) for i, (ended, steps) in enumerate(counts, 1)]


def test_estimate_begins_with_whole_spans_of_steps():
    assert lines((0, 0), (0, 0), (0, 64), (0, 64), (0, 640), (0, 1280)) == [
        f"{STARTING}, 10 s",
        f"{STARTING}, 20 s",
        "0 of 64 episodes, 64 steps",
        "0 of 64 episodes, 64 steps; no step for 10 s, as while code compiles",
        "0 of 64 episodes, 640 steps",
        "0 of 64 episodes, 1,280 steps, at most 0:06:20 left",
    ]


def test_estimate_follows_the_episodes_so_far():
    assert lines((0, 640), (32, 1280))[-1].endswith("1,280 steps, about 0:00:20 left")
    assert lines((0, 640), (1, 12_800))[-1].endswith("about 0:00:11 left")  # no episode is longer than the limit
    assert lines((0, 640), (64, 6400))[-1].endswith("about 0:00:00 left")


def test_evaluation_shows_the_lines(capfd):
    env = EnvConfig("Catch-v0")
    make_env = functools.partial(make_vector_env, env, seed=evaluation_seed(1))
    play_episodes(make_env, env_spec(env), RandomAgent(3, 1), 640, 9, 0, progress_secs=1e-4)
    assert " of 640 episodes, " in (shown := capfd.readouterr().out) and " left\n" in shown


@pytest.mark.parametrize(
    "task, asked, limit",
    [
        ("BabyAI-Text-GoToLocal-RedBall-S20", 5000, 400),
        ("BabyAI-Text-GoToLocal-RedBall-S20", 30, 30),
        ("Catch-v0", 5000, 9),
        ("Crafter-v1", 20_000, 10_000),
        ("NetHackScore-v1", 5000, 5000),
    ],
)
def test_limit_is_the_environment_s_where_that_is_less(task, asked, limit):
    env = EnvConfig(task, max_episode_steps=asked)
    assert step_limit(env) == chosen_task(env, task, 0).max_episode_steps == limit


def test_limit_of_gymnasium_s_wrapper_is_known(monkeypatch):
    lake = gymnasium_environment("Lake-v0", lambda: gymnasium.make("FrozenLake-v1", max_episode_steps=70))
    monkeypatch.setattr(registry, "ENVIRONMENTS", [*registry.ENVIRONMENTS, lake])
    assert [step_limit(EnvConfig("Lake-v0", max_episode_steps=asked)) for asked in (50, 5000)] == [50, 70]
