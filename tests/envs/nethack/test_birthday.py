"""Games don't follow the clock."""

import numpy as np
import pytest

from oni_jax.envs.nethack import game as nethack_game
from oni_jax.envs.nethack.birthday import birthday_of
from oni_jax.envs.nethack.game import GameArrays, NetHackGame
from oni_jax.envs.nethack.native.vector_env import NativeVectorEnv
from oni_jax.envs.nethack.screens import VIEWS, Screens
from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv, episode_seeds
from oni_jax.settings.worlds import NetHackConfig
from tests.envs.nethack.native import needs_native
from tests.envs.outputs import step_output

TASK = TASKS["NetHackScore-v1"]


@pytest.fixture
def game():
    from oni_jax.envs.nethack.vector_env import engine_array

    names = ("blstats", "message", "glyphs", "internal", "program_state")
    arrays = GameArrays(**{name: engine_array(name, 1) for name in names}, screen=Screens(1, VIEWS["map"]).arrays)
    game = NetHackGame(TASK, arrays, 0)
    yield game
    game.close()


def birthday(game):
    found = birthday_of(game._nethack.dlpath)
    return found and found.value


def test_heroes_are_born_when_the_seed_says(game):
    born = {}
    for seed in (5, 6, 5, 2**62 + 17):
        game.start(seed, 1)
        assert born.setdefault(seed, birthday(game)) == birthday(game)
        assert not game.follows_clock
    assert born == {5: 5, 6: 6, 2**62 + 17: 17}


@needs_native
def test_heroes_of_games_in_c_are_born_when_the_seed_says():
    seeds = iter([5, 6, 5, 2**62 + 17])
    settings = NetHackConfig(engine="wheel")  # test_engine compares what the built one makes of it
    env = NativeVectorEnv(TASK, 1, lambda *_: (next(seeds), 1), max_episode_steps=1, settings=settings)
    out, born = step_output(env), []
    env.reset(out)
    for _ in range(3):
        born.append(birthday(env._games[0]))
        env.step(np.zeros(1, np.int32), out)
    assert [*born, birthday(env._games[0])] == [5, 6, 5, 17]
    env.close()


def test_the_engine_is_still_loaded_anew(game, monkeypatch):
    """A handle that was kept would hold the old engine, and with it the old game, in memory."""
    game.start(5, 1)
    monkeypatch.setattr(nethack_game, "birthday_of", lambda path: None)
    game.start(5, 1)
    assert (birthday(game) or 0) > 1_700_000_000  # the engine's: now
    assert game.follows_clock


def test_library_that_is_not_loaded_has_no_birthday():
    assert birthday_of("/nowhere/libnethack.so") is None


def test_an_environment_tells_that_it_follows_the_clock(monkeypatch):
    monkeypatch.setattr(nethack_game, "birthday_of", lambda path: None)
    env = NetHackVectorEnv(TASK, 1, episode_seeds(1))
    env.reset(step_output(env))
    assert "shopkeepers are named by the clock" in env.note()
    env.close()
