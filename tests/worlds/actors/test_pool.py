"""Pools: processes play what the serial pool plays, and their failures are told."""

import functools
import os
import pathlib
import signal
import time
from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pytest

from launch import train
from oni_jax.envs.display import ROWS, Terminal
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.host.runtime import ChildError, start_child
from oni_jax.settings.worlds import EnvConfig
from oni_jax.worlds.actors import process_pool as process_pool_module
from oni_jax.worlds.actors.pool import ActorPool, Replies
from oni_jax.worlds.actors.process_pool import ProcessPool
from oni_jax.worlds.actors.ring import RingShape, TrajectoryRing
from oni_jax.worlds.actors.serial_pool import SerialPool

SHAPE = RingShape(num_groups=4, group_size=3, num_slots=4, rollout=20)


def play(pool: ActorPool, ring: TrajectoryRing, num_steps: int) -> None:
    """Fills rows 0..num_steps of slot u with group u, actions by a fixed rule."""
    generator = np.random.default_rng(7)
    actions = generator.integers(ring.spec.num_actions, size=(num_steps, *ring.actions.shape))
    pool.start()
    for t in range(num_steps + 1):
        if t > 0:
            ring.actions[:] = actions[t - 1]
        waiting = set(range(SHAPE.num_groups))
        for group in waiting:
            pool.dispatch(group, group, t)
        while waiting:
            waiting -= set(pool.wait(10.0).done)


def make(env: EnvConfig):
    ring = TrajectoryRing(env_spec(env), SHAPE)
    return ring, functools.partial(make_vector_env, env, seed=3)


@pytest.mark.parametrize("task", ["Catch-v0", "NetHackScoreExtendedActions-v1"])
def test_processes_play_the_same_episodes_as_the_serial_pool(task):
    env = EnvConfig(root_env=task, max_episode_steps=15)  # so that NetHack's episodes end too
    rings = []
    for build in (SerialPool, functools.partial(ProcessPool, num_workers=2)):
        ring, make_env = make(env)
        pool = build(make_env, ring)
        try:
            play(pool, ring, SHAPE.rollout)
        finally:
            pool.close()
        rings.append(ring)
    serial, processes = rings
    for name in serial.records.dtype.names:  # type: ignore
        np.testing.assert_array_equal(serial.records[name], processes.records[name], err_msg=name)
    assert serial.records["is_first"].sum() > SHAPE.num_groups * SHAPE.group_size  # episodes ended
    np.testing.assert_array_equal(serial.episode_stats, processes.episode_stats)
    assert (processes.busy_secs > 0).all()


@pytest.mark.parametrize("build", [SerialPool, functools.partial(ProcessPool, num_workers=2)])
def test_the_first_game_of_all_is_shown_when_asked(build):
    ring, make_env = make(EnvConfig(root_env="NetHackScore-v1"))
    assert ring.terminal.take() is None
    pool = build(make_env, ring)
    try:
        play(pool, ring, 3)
        first = ring.terminal.take()
        assert first is not None and first.cursor is not None and chr(first.chars[tuple(first.cursor)]) == "@"
        assert first is ring.terminal.take()
        row = ring.records[0, 0, 0]  # the newest when it was asked for
        assert row["message"].tobytes().rstrip(b"\0")[:80] in first.chars[0].tobytes()
        near, (y, x) = row["chars"], first.cursor - [1, 0]  # ONI's window is a row too high
        np.testing.assert_array_equal(first.chars[y - 2 : y + 3, x - 2 : x + 3], near[4:9, 4:9])
        ring.actions[:] = 1
        pool.dispatch(0, 0, 4)
        while not pool.wait(10.0).done:
            pass
        second = ring.terminal.take()
        assert second is not None and second is not first and not np.array_equal(first.chars, second.chars)
    finally:
        pool.close()


def test_a_game_without_looks_shows_nothing():
    ring, make_env = make(EnvConfig(root_env="Catch-v0"))
    pool = SerialPool(make_env, ring)
    for _ in range(2):
        assert ring.terminal.take() is None
        play(pool, ring, 1)


BLANK = np.zeros((ROWS, 80), np.uint8)


@pytest.mark.parametrize(
    ("draw", "reason"),
    [
        (lambda: int("x"), b"ValueError: invalid literal"),
        (lambda: Terminal(BLANK[:3], BLANK), b"chars of a terminal are integers [24, 80], not uint8 [3, 80]"),
        (lambda: Terminal(BLANK, BLANK[:3]), b"colors of a terminal are integers [24, 80], not uint8 [3, 80]"),
        (lambda: Terminal(BLANK.astype("U1"), BLANK), b"chars of a terminal are integers [24, 80], not <U1"),
        (lambda: Terminal(BLANK, BLANK, np.zeros(3, int)), b"cursor of a terminal are integers [2], not int64 [3]"),
        (lambda: BLANK, b"AttributeError"),
    ],
)
def test_a_game_that_cannot_be_drawn_plays_on(draw, reason):
    def make_undrawable(**indices):
        env = make_vector_env(EnvConfig(root_env="Catch-v0"), seed=3, **indices)
        env.terminal = draw
        return env

    ring, _ = make(EnvConfig(root_env="Catch-v0"))
    pool = SerialPool(make_undrawable, ring)
    ring.terminal.take()
    play(pool, ring, 2)
    terminal = ring.terminal.take()
    assert terminal is not None and reason in b" ".join(terminal.chars[:2].tobytes().split())


@pytest.fixture
def process_pool():
    ring, make_env = make(EnvConfig(root_env="Catch-v0"))
    pool = ProcessPool(make_env, ring, num_workers=2)
    pool.start()
    yield pool
    pool.close()
    assert not [actor.name for actor in pool._actors if actor.process.is_alive()]


def test_failed_start_of_an_actor_ends_training_and_all_actors(monkeypatch, tmp_path, capsys):
    started = []

    def start_one(*args, **settings):
        if started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(start_child(*args, **settings))
        return started[-1]

    monkeypatch.setattr(process_pool_module, "start_child", start_one)
    words = (
        "--root_env Catch-v0 --llm_reward_type none --encoder_custom mlp_encoder --hidden_size 16 --num_workers 2 "
        "--num_envs_per_worker 2 --worker_num_splits 1 --batch_size 128 --train_for_env_steps 100"
    )
    assert train.main([*words.split(), f"--train_dir={tmp_path}"]) == 1
    error = capsys.readouterr().err
    assert "error: actor-1 can't be started: " in error and "unavailable; a smaller --num_workers" in error
    ((process, _),) = started
    assert not process.is_alive()


def wait_for_error(pool: ProcessPool) -> str:
    deadline = time.monotonic() + 20
    with pytest.raises(ChildError) as caught:
        while time.monotonic() < deadline:
            pool.wait(0.2)
    return str(caught.value)


def test_a_killed_actor_is_told(process_pool):
    os.kill(process_pool._actors[1].process.pid, signal.SIGKILL)
    assert "actor-1" in wait_for_error(process_pool)


def test_an_actor_that_raises_sends_its_traceback(process_pool):
    process_pool.dispatch(0, 99, 0)  # there is no slot 99
    text = wait_for_error(process_pool)
    assert "actor-0 failed" in text and "IndexError" in text


def test_a_hanging_actor_is_told(process_pool, monkeypatch):
    monkeypatch.setattr(process_pool_module, "HANG_SECS", 1.0)
    monkeypatch.setattr(process_pool_module, "START_SECS", 1.0)
    os.kill(process_pool._actors[0].process.pid, signal.SIGSTOP)
    process_pool.dispatch(0, 0, 0)
    assert "has not replied" in wait_for_error(process_pool)


def test_a_first_step_may_be_slow_as_where_it_is_compiled(monkeypatch):
    monkeypatch.setattr(process_pool_module, "HANG_SECS", 1.0)
    monkeypatch.setattr(process_pool_module, "CHECK_SECS", 0.1)
    ring, make_env = make(EnvConfig(root_env="Catch-v0"))
    with closing(ProcessPool(make_env, ring, num_workers=2)) as pool:
        pool.start()
        start_games(pool, range(SHAPE.num_groups))
        pid = pool._actors[0].process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        for group in pool._actors[0].groups:  # each compiles separately
            pool.dispatch(group, group, 1)
            for _ in range(12):  # longer than HANG_SECS
                assert not pool.wait(0.1).done
            os.kill(pid, signal.SIGCONT)
            assert pool.wait(10.0).done == [group]
            os.kill(pid, signal.SIGSTOP)
        pool.dispatch(0, 0, 2)
        assert "has not replied for 1 s" in wait_for_error(pool)


@pytest.fixture
def lasting_pool():
    """Two actors that may be replaced twice, their games started, in slots of their groups' numbers."""
    ring, make_env = make(EnvConfig(root_env="Catch-v0"))
    pool = ProcessPool(make_env, ring, num_workers=2, max_restarts=2)
    pool.start()
    start_games(pool, range(SHAPE.num_groups))
    yield pool
    pool.close()
    assert not [actor.name for actor in pool._actors if actor.process.is_alive()]
    assert not os.path.exists(pool._scratch.path)


def start_games(pool: ProcessPool, groups: Sequence[int]) -> None:
    for group in groups:
        pool.dispatch(group, group, 0)
    waiting = set(groups)
    while waiting:
        answers = pool.wait(10.0)
        assert not answers.lost
        waiting -= set(answers.done)


def wait_for_loss(pool: ProcessPool) -> Replies:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if (answers := pool.wait(0.2)).lost:
            return answers
    raise AssertionError("no actor was lost")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=lambda number: number.name)
def test_a_dead_actor_is_replaced_by_one_with_other_games(lasting_pool, number):
    ring, dead = lasting_pool._ring, lasting_pool._actors[1].process.pid
    before = ring.records[:, 0].copy()
    os.kill(dead, number)
    answers = wait_for_loss(lasting_pool)
    assert list(answers.lost) == [2, 3]
    (failure,) = answers.failures
    assert failure.startswith(f"actor-1 (pid {dead}) died, killed by {number.name}") and "restart 1 of 2" in failure
    start_games(lasting_pool, answers.lost)
    assert ring.records["is_first"][2:, 0].all()
    assert (ring.records["board"][2:, 0] != before["board"][2:]).any()  # a Catch game starts at one of five columns
    start_games(lasting_pool, [0])  # the other one has not noticed
    ring.actions[:] = 0
    lasting_pool.dispatch(3, 3, 1)
    assert list(lasting_pool.wait(10.0).done) == [3]
    assert not ring.records["is_first"][3, 1].any()


def test_a_hanging_actor_is_replaced(lasting_pool, monkeypatch):
    monkeypatch.setattr(process_pool_module, "HANG_SECS", 1.0)
    monkeypatch.setattr(process_pool_module, "START_SECS", 1.0)
    hanging = lasting_pool._actors[0].process
    os.kill(hanging.pid, signal.SIGSTOP)
    lasting_pool.dispatch(1, 1, 1)
    answers = wait_for_loss(lasting_pool)
    monkeypatch.undo()
    assert list(answers.lost) == [0, 1] and "has not replied for 1 s" in answers.failures[0]
    assert not hanging.is_alive()
    start_games(lasting_pool, answers.lost)


def test_the_games_files_of_a_dead_actor_are_gone(lasting_pool):
    actor = lasting_pool._actors[0]
    left = os.path.join(actor.scratch, "left")
    open(left, "w").close()
    actor.process.kill()
    wait_for_loss(lasting_pool)
    assert os.path.isdir(actor.scratch) and not os.path.exists(left)


def test_one_replacement_too_many_ends_with_the_last_words(lasting_pool):
    for _ in range(2):
        lasting_pool._actors[0].process.kill()
        start_games(lasting_pool, wait_for_loss(lasting_pool).lost)
    lasting_pool.dispatch(0, 99, 1)  # there is no slot 99
    text = wait_for_error(lasting_pool)
    assert "IndexError" in text and "Traceback" in text and "--max_actor_restarts is 2" in text


def test_the_only_actor_is_replaced_when_it_raises():
    ring, make_env = make(EnvConfig(root_env="Catch-v0"))
    pool = ProcessPool(make_env, ring, num_workers=1, max_restarts=1)
    pool.start()
    start_games(pool, range(SHAPE.num_groups))
    pool.dispatch(0, 99, 1)  # there is no slot 99
    start_games(pool, wait_for_loss(pool).lost)
    pool.close()
    assert not os.path.exists(pool._scratch.path)


def make_remote(make_env, error: Exception, *args, **named):
    """Environments that lose the simulator to which they are connected."""

    def step(actions, out):
        raise error

    env = make_env(*args, **named)
    env.step = step
    return env


@pytest.mark.parametrize("error", [BrokenPipeError("it is gone"), EOFError("it is gone")])
def test_a_lost_connection_of_an_environment_is_none_of_the_actor(error):
    ring, make_env = make(EnvConfig(root_env="Catch-v0"))
    pool = ProcessPool(functools.partial(make_remote, make_env, error), ring, num_workers=1, max_restarts=1)
    pool.start()
    start_games(pool, range(SHAPE.num_groups))
    pool.dispatch(0, 0, 1)
    lost = wait_for_loss(pool)
    assert f"{type(error).__name__}: it is gone: replaced" in lost.failures[0]
    start_games(pool, lost.lost)
    pool.close()
    assert not os.path.exists(pool._scratch.path)


def test_error_of_an_environment_is_shown_at_once_and_ends_the_run_when_it_repeats():
    ring, make_env = make(EnvConfig(root_env="Catch-v0"))
    faulty = functools.partial(make_remote, make_env, ZeroDivisionError("no speed"))
    pool = ProcessPool(faulty, ring, num_workers=1, max_restarts=10)
    pool.start()
    start_games(pool, range(SHAPE.num_groups))
    pool.dispatch(0, 0, 1)
    lost = wait_for_loss(pool)
    (shown,) = lost.failures
    assert "Traceback" in shown and "raise error" in shown and "ZeroDivisionError: no speed: replaced" in shown
    start_games(pool, lost.lost)
    pool.dispatch(1, 1, 1)
    text = wait_for_error(pool)
    assert "raise error" in text and text.endswith("the same error was raised before: correct the environment")
    pool.close()


def test_an_actor_can_be_found_by_its_folder(lasting_pool):
    """By the next run, which ends it where it hangs and this one was killed."""
    for actor in lasting_pool._actors:
        opened = {os.path.realpath(link) for link in pathlib.Path(f"/proc/{actor.process.pid}/fd").iterdir()}
        assert os.path.realpath(actor.scratch) in opened


def test_a_learner_that_stood_still_takes_no_actor_for_hanging(lasting_pool):
    lasting_pool._dispatched_at = dict.fromkeys(range(SHAPE.num_groups), time.monotonic() - 1000)
    lasting_pool._checked_at = time.monotonic() - 1000
    assert not lasting_pool.wait(0.01).lost


def test_replacements_long_ago_do_not_count(lasting_pool, monkeypatch):
    monkeypatch.setattr(process_pool_module, "RESTARTS_WINDOW_SECS", 0.0)
    for _ in range(3):
        lasting_pool._actors[1].process.kill()
        answers = wait_for_loss(lasting_pool)
        assert "restart 1 of 2" in answers.failures[0]
        start_games(lasting_pool, answers.lost)


def test_wake_ends_a_wait(process_pool):
    process_pool.wake()
    start = time.monotonic()
    assert process_pool.wait(30.0) == Replies([], [])
    assert time.monotonic() - start < 10
