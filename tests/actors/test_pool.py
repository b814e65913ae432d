"""Pools: processes play what the serial pool plays, and their failures are told."""

import functools
import os
import signal
import time

import numpy as np
import pytest

from oni_jax.actors import process_pool as process_pool_module
from oni_jax.actors.pool import ActorPool
from oni_jax.actors.process_pool import ProcessPool
from oni_jax.actors.serial_pool import SerialPool
from oni_jax.buffers.ring import RingShape, TrajectoryRing
from oni_jax.config import EnvConfig
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.runtime import ChildError

SHAPE = RingShape(num_units=4, num_envs_per_unit=3, num_slots=4, rollout=20)


def play(pool: ActorPool, ring: TrajectoryRing, num_steps: int) -> None:
    """Fills rows 0..num_steps of slot u with unit u, actions by a fixed rule."""
    generator = np.random.default_rng(7)
    actions = generator.integers(ring.spec.num_actions, size=(num_steps, *ring.actions.shape))
    pool.start()
    for t in range(num_steps + 1):
        if t > 0:
            ring.actions[:] = actions[t - 1]
        waiting = set(range(SHAPE.num_units))
        for unit in waiting:
            pool.dispatch(unit, unit, t)
        while waiting:
            waiting -= set(pool.wait(10.0))


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
    for name in serial.records.dtype.names:
        np.testing.assert_array_equal(serial.records[name], processes.records[name], err_msg=name)
    assert serial.records["is_first"].sum() > SHAPE.num_units * SHAPE.num_envs_per_unit  # episodes ended
    np.testing.assert_array_equal(serial.episode_stats, processes.episode_stats)
    assert (processes.busy_secs > 0).all()


@pytest.fixture
def process_pool():
    ring, make_env = make(EnvConfig(root_env="Catch-v0"))
    pool = ProcessPool(make_env, ring, num_workers=2)
    pool.start()
    yield pool
    pool.close()
    assert not [process for process, _ in pool._children if process.is_alive()]


def wait_for_error(pool: ProcessPool) -> str:
    deadline = time.monotonic() + 20
    with pytest.raises(ChildError) as caught:
        while time.monotonic() < deadline:
            pool.wait(0.2)
    return str(caught.value)


def test_a_killed_actor_is_told(process_pool):
    process, _ = process_pool._children[1]
    os.kill(process.pid, signal.SIGKILL)
    assert "actor-1" in wait_for_error(process_pool)


def test_an_actor_that_raises_sends_its_traceback(process_pool):
    process_pool.dispatch(0, 99, 0)  # there is no slot 99
    text = wait_for_error(process_pool)
    assert "actor-0 failed" in text and "IndexError" in text


def test_a_hanging_actor_is_told(process_pool, monkeypatch):
    monkeypatch.setattr(process_pool_module, "HANG_SECS", 1.0)
    process, _ = process_pool._children[0]
    os.kill(process.pid, signal.SIGSTOP)
    process_pool.dispatch(0, 0, 0)
    assert "has not answered" in wait_for_error(process_pool)
    os.kill(process.pid, signal.SIGCONT)


def test_wake_ends_a_wait(process_pool):
    process_pool.wake()
    start = time.monotonic()
    assert process_pool.wait(30.0) == []
    assert time.monotonic() - start < 10
