"""Children that die, stop or hang: each is replaced or ended in time, and nothing waits for it."""

import functools
import itertools
import os
import pathlib
import signal
import time
from contextlib import closing

import pytest

from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.service import AnnotationService
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.host import children
from oni_jax.host.inbox import Inbox
from oni_jax.host.restarts import Restarts
from oni_jax.host.runtime import ChildError, start_child, stop_children
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.worlds.actors import process_pool
from oni_jax.worlds.actors.process_pool import ProcessPool
from oni_jax.worlds.actors.ring import RingShape, TrajectoryRing
from tests.annotation.test_judge import call
from tests.annotation.test_service import ITEMS, collect, wait_for
from tests.support.asking import label_of, queries, question, start_judge
from tests.support.trials import trial

STOPPED = [pytest.param(signal.SIGKILL, id="killed"), pytest.param(signal.SIGSTOP, id="stopped")]
LONG = 200_000  # bytes of a caption
ENV = EnvConfig(root_env="NetHackScore-v1")
SHAPE = RingShape(num_groups=2, group_size=4, num_slots=2, rollout=8)


def send_long(connection) -> None:
    for _ in range(2):
        connection.send_bytes(b"x" * 8 * LONG)
    connection.recv_bytes()


def test_message_of_a_child_that_is_stopped_in_the_middle_of_it_is_waited_for_by_nobody():
    process, connection = start_child("long", send_long)
    inbox = Inbox(connection)
    assert inbox.wait_for_some(20.0)
    assert process.pid
    os.kill(process.pid, signal.SIGSTOP)
    started = time.monotonic()
    for _ in range(50):
        assert inbox.receive() == []
    with pytest.raises(TimeoutError):
        inbox.wait(0.5)
    assert time.monotonic() - started < 5
    os.kill(process.pid, signal.SIGCONT)
    assert [inbox.wait(20.0) for _ in range(2)] == [b"x" * 8 * LONG] * 2
    inbox.close()
    stop_children([(process, connection)], 5.0)


def test_long_message_of_a_child_that_dies_in_the_middle_of_it_is_its_end():
    process, connection = start_child("long", send_long)
    inbox = Inbox(connection)
    assert inbox.wait_for_some(20.0)
    process.kill()
    with pytest.raises(EOFError):
        inbox.wait(20.0)
    inbox.close()
    stop_children([(process, connection)], 0.0)


def make_wordy(**named):
    """Games whose captions are long, and new at each step."""
    env, steps = make_vector_env(ENV, seed=3, **named), iter(range(1 << 30))
    step = env.step

    def say(actions, out) -> None:
        step(actions, out)
        out.texts.captions[:] = [b"%d " % next(steps) + b"x" * LONG for _ in range(SHAPE.group_size)]

    env.step = say
    return env


def replies(pool: ProcessPool, number: int) -> None:
    while number:
        number -= len(pool.wait(10.0).done)


def first_failure(pool: ProcessPool) -> str:
    started = time.monotonic()
    while time.monotonic() - started < 10:
        if failures := pool.wait(0.2).failures:
            return failures[0]
    raise AssertionError("no failure")


@trial("actor lost")
def test_actor_that_is_stopped_in_the_middle_of_a_long_reply_is_replaced(monkeypatch):
    ring = TrajectoryRing(env_spec(ENV), SHAPE)
    with closing(ProcessPool(make_wordy, ring, 2, max_restarts=2)) as pool:
        pool.start()
        for t in (0, 1):
            for group in range(2):
                pool.dispatch(group, group, t)
            replies(pool, 2)
        stopped = pool._actors[0].process
        pool.dispatch(0, 0, 2)
        time.sleep(0.5)  # until the pipe is full
        os.kill(stopped.pid or 0, signal.SIGSTOP)
        monkeypatch.setattr(process_pool, "HANG_SECS", 1.5)
        pool.dispatch(1, 1, 2)
        failure = first_failure(pool)
        assert "actor-0" in failure and "has not replied for 2 s: replaced" in failure
        assert not stopped.is_alive()


def make_hanging(hung: pathlib.Path, **named):
    """Games of which the first process's hang in their third step, once, and pass over SIGTERM."""
    env, steps = make_vector_env(EnvConfig(root_env="Catch-v0"), seed=3, **named), itertools.count()
    step, hangs = env.step, not named["first_index"] and not (hung.exists() or hung.touch())

    def step_or_hang(actions, out) -> None:
        while hangs and next(steps) >= 2:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(0.01)
        step(actions, out)

    env.step = step_or_hang
    return env


@trial("actor lost")
def test_environment_that_hangs_in_a_step_is_named_and_its_process_replaced(monkeypatch, tmp_path):
    make = functools.partial(make_hanging, tmp_path / "hung")
    ring = TrajectoryRing(env_spec(EnvConfig(root_env="Catch-v0")), SHAPE)
    with closing(ProcessPool(make, ring, 2, max_restarts=2)) as pool:
        pool.start()
        hanging = pool._actors[0].process
        for t in (0, 1, 2):
            for group in range(2):
                pool.dispatch(group, group, t)
            replies(pool, 2)
        monkeypatch.setattr(process_pool, "HANG_SECS", 1.5)
        pool.dispatch(0, 0, 3)
        assert f"actor-0 (pid {hanging.pid}) has not replied for 2 s: replaced" in first_failure(pool)
        assert not hanging.is_alive() and pool._actors[0].process.is_alive()
        pool.dispatch(0, 0, 0)
        replies(pool, 1)  # new games


@pytest.mark.slow
def test_stopped_actors_are_ended_together():
    shape = SHAPE._replace(num_groups=3, group_size=1)
    ring = TrajectoryRing(env_spec(EnvConfig(root_env="Catch-v0")), shape)
    make_env = functools.partial(make_vector_env, EnvConfig(root_env="Catch-v0"), seed=3)
    pool = ProcessPool(make_env, ring, 3, max_restarts=2)
    pool.start()
    for group in range(3):
        pool.dispatch(group, group % 2, 0)
    replies(pool, 3)
    for actor in pool._actors:
        os.kill(actor.process.pid or 0, signal.SIGSTOP)
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 6
    assert not any(actor.process.is_alive() for actor in pool._actors)


@pytest.fixture
def soon(monkeypatch):
    """A child is given up soon: a little after its beats are due."""
    monkeypatch.setattr(children, "SILENT_SECS", children.BEAT_SECS + 1.5)


def answers(address: str) -> bool:
    try:
        return call(address, "/health")[0] == 200
    except OSError:
        return False


@trial("answering process lost")
@pytest.mark.parametrize("number", [STOPPED[0], pytest.param(signal.SIGSTOP, id="stopped", marks=pytest.mark.slow)])
def test_judge_that_is_lost_is_started_again_where_it_was(number, soon, capfd):
    judge = start_judge()
    lost = judge._process.pid
    os.kill(lost or 0, number)
    started = time.monotonic()
    while not answers(judge.address):
        assert time.monotonic() - started < 30
        time.sleep(0.2)
    assert judge._process.pid != lost and judge._restarts.num_lost == 1
    judge.close()
    assert not judge._process.is_alive()
    assert f"the judge (pid {lost}) " in (out := capfd.readouterr().out) and "restart 1 of 10 in 10 minutes" in out


def service_of(judge, tmp_path, restarts: Restarts) -> AnnotationService:
    config = AnnotationConfig(llm_server_addr=judge.address, llm_batch_size=50)
    return AnnotationService([question(config)], LabelStore(str(tmp_path / "labels.sqlite")), restarts=restarts)


@trial("answering process lost")
@pytest.mark.parametrize("number", [STOPPED[0], pytest.param(signal.SIGSTOP, id="stopped", marks=pytest.mark.slow)])
def test_process_that_asks_is_started_again_and_asked_what_is_left(number, soon, tmp_path):
    with closing(start_judge()) as judge, closing(service_of(judge, tmp_path, Restarts())) as service:
        service.submit(queries(ITEMS[:100]))
        collect(service, 100)
        wait_for(service, lambda stats: stats["labels_asked"] == 100)
        os.kill(service._process.pid or 0, number)
        service.submit(queries(ITEMS))
        annotations = collect(service, len(ITEMS) - 100)  # none of the first 100 comes twice
        assert {x.item for x in annotations} == {*ITEMS[100:]} and all(label_of(x) is not None for x in annotations)
        wait_for(service, lambda stats: stats["labels_held"] == len(ITEMS))
        assert service.poll() == []
        stats = service.stats()
        assert (stats["restarts"], stats["labels_asked"]) == (1, len(ITEMS))


@trial("answering process lost often")
def test_process_that_dies_again_and_again_ends_the_run(tmp_path):
    with closing(start_judge()) as judge, closing(service_of(judge, tmp_path, Restarts(max_restarts=1))) as service:
        with pytest.raises(ChildError, match="killed by SIGKILL\nprocesses that answer were lost 2 times"):
            for _ in range(2):
                service._process.kill()
                service._process.join()
                service.poll()


@trial("answering process lost often")
@pytest.mark.slow
def test_judge_that_dies_again_and_again_ends_the_run(tmp_path):
    restarts = Restarts(max_restarts=0)
    with closing(start_judge(restarts=restarts)) as judge, closing(service_of(judge, tmp_path, restarts)) as service:
        judge._process.kill()
        with pytest.raises(ChildError, match="the judge .* died, killed by SIGKILL"):
            wait_for(service, lambda stats: False)


@pytest.mark.slow
def test_stopped_processes_that_answer_are_ended_in_seconds(tmp_path):
    judge = start_judge()
    service = service_of(judge, tmp_path, Restarts())
    wait_for(service, lambda stats: stats["state"] == "ok")
    for process in (judge._process, service._process):
        os.kill(process.pid or 0, signal.SIGSTOP)
    started = time.monotonic()
    service.close()
    judge.close()
    assert time.monotonic() - started < 7
    assert not judge._process.is_alive() and not service._process.is_alive()
