"""Groups of NetHack games. What a step means is checked against recordings in tests/golden."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

from oni_jax.envs.nethack import game as nethack_game
from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.envs.nethack.vector_env import (
    BLSTATS_SCALE,
    DEFAULT_OBSERVATIONS,
    EPISODE_STATS,
    MAX_STARTS,
    OBSERVATIONS,
    NetHackVectorEnv,
    episode_seeds,
)
from tests.envs.nethack.native import ENGINES
from tests.envs.outputs import are_equal, step_output
from tests.support.processes import ROOT

TASK = TASKS["NetHackScoreExtendedActions-v1"]


def play(env, actions):
    """Copies of the records [T+1, N], finals [T, N] and episode statistics [T, N, K] of actions [T, N]."""
    out = step_output(env)
    env.reset(out)
    records, finals, stats = [out.records.copy()], [], []
    for action in actions:
        env.step(action, out)
        records.append(out.records.copy())
        finals.append(out.finals.copy())
        stats.append(out.episode_stats.copy())
    env.close()
    return np.array(records), np.array(finals), np.array(stats)


def random_actions(num_steps, num_envs, seed=0, num_actions=28):
    return np.random.default_rng(seed).integers(num_actions, size=(num_steps, num_envs)).astype(np.int32)


def make_env(num_envs=1, seed=3, first_index=0, max_episode_steps=60, observations=DEFAULT_OBSERVATIONS):
    return NetHackVectorEnv(TASK, num_envs, episode_seeds(seed), first_index, max_episode_steps, observations)


@pytest.fixture(scope="module")
def group():
    """Three games, 150 steps, at least two truncations each."""
    actions = random_actions(150, 3)
    return actions, *play(make_env(3, observations=OBSERVATIONS), actions)


def test_a_group_equals_single_games(group):
    actions, records, _, stats = group
    for i in range(3):
        alone, _, alone_stats = play(make_env(1, first_index=i, observations=OBSERVATIONS), actions[:, i : i + 1])
        assert are_equal(alone[:, 0], records[:, i])
        assert (alone_stats[:, 0] == stats[:, i]).all()


def test_equal_seeds_repeat_and_others_differ(group):
    actions, records, _, _ = group
    again, _, _ = play(make_env(3, observations=OBSERVATIONS), actions)
    assert are_equal(again, records)
    other, _, _ = play(make_env(3, seed=4, observations=OBSERVATIONS), actions)
    assert (other["chars"][0] != records["chars"][0]).any()
    starts = records["chars"][records["is_first"]]
    assert len({start.tobytes() for start in starts}) == len(starts) >= 9


def test_seeds():
    seeds = episode_seeds(1)
    drawn = [seeds(index, episode) for index in range(3) for episode in range(3)] + [episode_seeds(2)(0, 0)]
    assert len(set(drawn)) == 10
    assert seeds(2, 1) == episode_seeds(1)(2, 1)
    assert all(0 <= seed < 2**63 for pair in drawn for seed in pair)


def test_step_fields(group):
    _, records, _, _ = group
    assert records["is_first"][0].all()
    ended = records["terminated"] | records["truncated"]
    assert (records["is_first"][1:] == ended[1:]).all()
    assert not (records["terminated"] & records["truncated"]).any()
    assert (records["reward"][0] == 0).all()
    assert (records["reward"][1:] == np.float32(-0.01)).any()


def test_truncation_keeps_the_final_observation(group):
    _, records, finals, stats = group
    steps, games = np.nonzero(records["truncated"])
    assert len(steps) >= 6
    for step, i in zip(steps.tolist(), games.tolist()):
        final, before = finals[step - 1, i], records[step - 1, i]
        assert final["truncated"] and not final["terminated"] and not final["is_first"]
        assert final["reward"] == records["reward"][step, i]
        # The last observation goes on from the one before it; the next episode's begins at turn 1.
        turns = 1000 * final["vector_obs"][20], 1000 * before["vector_obs"][20]
        assert 0 <= turns[0] - turns[1] <= 100 and turns[0] > 5
        assert abs(1000 * records["vector_obs"][step, i, 20] - 1) < 0.01
        assert np.count_nonzero(final["glyphs"] != before["glyphs"]) < 200
        assert stats[step - 1, i, EPISODE_STATS.index("end_status")] == -1


def test_episode_statistics(group):
    _, records, _, stats = group
    for i in range(3):
        start = 0
        for step in np.flatnonzero(records["is_first"][1:, i]) + 1:
            episode = dict(zip(EPISODE_STATS, stats[step - 1, i]))
            last = records[step - 1, i]
            assert episode["length"] == step - start <= 60
            assert abs(episode["return"] - records["reward"][start + 1 : step + 1, i].sum()) < 1e-4
            assert abs(episode["turns"] - 1000 * last["vector_obs"][20]) < 0.01
            assert abs(episode["gold"] - 1000 * last["vector_obs"][13]) < 0.1 or episode["gold"] > 5000
            assert abs(episode["xlvl"] - 10 * last["vector_obs"][18]) < 0.01
            if episode["dlvl"] == 1:
                assert episode["scout"] == np.count_nonzero(last["glyphs"] != 2359)
            assert episode["end_status"] == (1 if records["terminated"][step, i] else -1)
            start = step


def test_observations(group):
    _, records, _, _ = group
    np.testing.assert_allclose(records["vector_obs"][..., :2], records["hero_xy"] / [79, 21], atol=1e-6)
    # The hero stands a row below the window's middle, because the terminal's first row is the message.
    assert (records["chars"][..., 7, 6] == ord("@")).mean() > 0.8
    assert set(np.unique(records["colors"])) <= set(range(16))
    assert np.abs(records["vector_obs"]).max() <= 5


def test_statistics_are_scaled():
    indices = [2, 9, 12, 17, 23, 24, 25, 26]
    assert (BLSTATS_SCALE[indices] == 0).all() and np.count_nonzero(BLSTATS_SCALE) == 27 - len(indices)
    np.testing.assert_allclose(BLSTATS_SCALE[[0, 1, 13, 19, 20, 21]], [1 / 79, 1 / 21, 1e-3, 1e-2, 1e-3, 1])


def test_success_ends_an_episode_once_the_goal_is_reached():
    always = TASK._replace(goal=lambda blstats, messages, glyphs: np.ones(len(blstats), bool))
    env = NetHackVectorEnv(always, 2, episode_seeds(0), max_episode_steps=3)
    records, _, stats = play(env, random_actions(4, 2))
    assert records["terminated"][1:].all() and (records["reward"][1:] == 50).all()
    assert (stats[..., EPISODE_STATS.index("end_status")] == 2).all()

    env = NetHackVectorEnv(always._replace(continual=True), 1, episode_seeds(0), max_episode_steps=3)
    records, _, _ = play(env, random_actions(6, 1))
    assert records["reward"][1:, 0].tolist() == [50, 0, 0, 50, 0, 0]
    assert records["truncated"][1:, 0].tolist() == [False, False, True] * 2

    # At the limit the goal is not looked at.
    env = NetHackVectorEnv(always, 1, episode_seeds(0), max_episode_steps=1)
    records, _, _ = play(env, random_actions(1, 1))
    assert records["truncated"][1, 0] and records["reward"][1, 0] == 0


def test_death_goes_before_the_limit(monkeypatch):
    env = make_env(max_episode_steps=1)
    monkeypatch.setattr(env._games[0], "settle", lambda key: True)
    monkeypatch.setattr(env._games[0], "quit", lambda: pytest.fail("a dead hero can't quit"))
    records, _, _ = play(env, random_actions(1, 1))
    assert records["terminated"][1, 0] and not records["truncated"][1, 0]


def test_close_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors = set(os.listdir("/proc/self/fd"))
    env = make_env(2)
    assert [path.name[:16] for path in tmp_path.iterdir()] == ["oni_jax_scratch_"]
    play(env, random_actions(3, 2))
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) <= len(descriptors)
    assert tempfile.tempdir == str(tmp_path)


class Raises:
    """In the place of one of an engine's functions: raises at its `number`-th call, and works otherwise."""

    def __init__(self, function, number):
        self._function, self._number, self._calls = function, number, 0

    def __call__(self, *args):
        self._calls += 1
        if self._calls == self._number:
            raise RuntimeError("the engine is out of order")
        return self._function(*args)


@pytest.mark.parametrize("where", ["press", "settle"])
def test_a_game_that_raises_is_replaced_and_the_others_notice_nothing(group, where, monkeypatch):
    actions, records, _, _ = group
    env = make_env(3, observations=OBSERVATIONS)
    if where == "press":
        env._games[1].press_raw = Raises(env._games[1].press_raw, number=10)
    else:
        monkeypatch.setattr(env._games[1], "settle", Raises(env._games[1].settle, number=10))
    played, finals, stats = play(env, actions)
    assert are_equal(played[:, 0], records[:, 0]) and are_equal(played[:, 2], records[:, 2])
    assert are_equal(played[:10, 1], records[:10, 1])
    assert played["is_first"][10, 1] and played["truncated"][10, 1] and played["reward"][10, 1] == 0
    assert stats[9, 1][EPISODE_STATS.index("length")] == 10 and stats[9, 1][EPISODE_STATS.index("end_status")] == -1
    # The next episode is the one that would have come next: the one that the undisturbed game began at 60.
    assert np.array_equal(played["chars"][10, 1], records["chars"][60, 1])
    assert env.num_restarts == 1 and "out of order" in env.note() and "game 1 " in env.note()


def test_a_game_that_fails_to_start_plays_the_same_episodes(group, monkeypatch):
    actions, records, _, _ = group
    env = make_env(3, observations=OBSERVATIONS)
    monkeypatch.setattr(env._games[1], "start", Raises(env._games[1].start, number=1))
    played, *_ = play(env, actions)
    assert are_equal(played, records)
    assert env.num_restarts == 1


def test_a_game_that_cannot_end_is_replaced(group, monkeypatch):
    actions, records, _, _ = group
    env = make_env(3, observations=OBSERVATIONS)
    game = env._games[2]
    monkeypatch.setattr(game, "quit", Raises(game.quit, number=1))
    played, *_ = play(env, actions)
    assert are_equal(played, records)
    assert env.num_restarts == 1


def test_a_game_that_asks_without_end_raises(monkeypatch):
    env = make_env()
    env.reset(step_output(env))
    monkeypatch.setattr(nethack_game, "MAX_AUTOMATIC_PRESSES", 0)
    with pytest.raises(RuntimeError, match="still prompts after 0 key presses"):
        env._games[0].quit()
    monkeypatch.undo()
    env.close()


def test_a_game_that_opens_with_a_question_starts():
    """The hero stands on a scroll that turns to dust when picked up, and is asked what to call it."""
    env = NetHackVectorEnv(TASK, 1, lambda *_: (3440655168540529677, 1684844190883426603), 0, 60)
    out = step_output(env)
    env.reset(out)
    assert env.num_restarts == 0 and out.records["is_first"].all()
    env.close()


def test_games_that_never_start_are_the_process_s_failure(monkeypatch):
    def start(game, core_seed, display_seed):
        raise RuntimeError("no start")

    env = make_env()
    monkeypatch.setattr(nethack_game.NetHackGame, "start", start)
    with pytest.raises(RuntimeError, match="no start"):
        env.reset(step_output(env))
    assert env.num_restarts == MAX_STARTS - 1
    env.close()


CHILD = """
import sys, time
from oni_jax.config import EnvConfig, NetHackConfig
from oni_jax.envs.registry import make_vector_env
env = make_vector_env(EnvConfig("NetHackScore-v1", nethack=NetHackConfig(engine=sys.argv[1])), 2, 0, 0)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_process_leaves_one_named_folder(tmp_path, engine):
    command = [sys.executable, "-c", CHILD, engine]
    child = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    time.sleep(0.1)
    assert [path.name[:16] for path in tmp_path.iterdir()] == ["oni_jax_scratch_"]


def test_number_of_games_is_limited_by_open_files():
    """Two files a game: 1,024 files, the usual limit that a process may raise, are too few for 512 games."""
    program = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, r.getrlimit(r.RLIMIT_NOFILE)[1]))\n"
        "from oni_jax.config import EnvConfig\nfrom oni_jax.envs.registry import make_vector_env\n"
        "from oni_jax.envs.base import make_step_output\n"
        "env = make_vector_env(EnvConfig(root_env='NetHackScore-v1'), 40, 1, 0)\n"
        "env.reset(make_step_output(env.spec, 40)); env.close()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
