"""Starting anew with other memory settings; signals, also where no handler runs or a child is just being started."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection

import pytest

from oni_jax.host import runtime
from oni_jax.host.runtime import STOP_SIGNALS, StopRequest, num_cores, start_child, stop_child

PROGRAM = """
import os, sys
from oni_jax.host.large_pages import tune_memory
print(os.getpid(), flush=True)
tune_memory()
print(os.environ["GLIBC_TUNABLES"], sys.argv[1:])
"""


TUNED = f"glibc.malloc.hugetlb=1:glibc.malloc.arena_max={max(2, num_cores())}"


@pytest.mark.parametrize(
    ("given", "used", "starts"),
    [
        ("", TUNED, 2),
        ("glibc.malloc.check=0", f"{TUNED}:glibc.malloc.check=0", 2),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0", 1),
    ],
)
def test_a_program_starts_anew_once_as_the_same_process(given, used, starts):
    command = [sys.executable, "-c", PROGRAM, "--flag", "a word"]
    ended = subprocess.run(command, env={**os.environ, "GLIBC_TUNABLES": given}, capture_output=True, text=True)
    *pids, last = ended.stdout.splitlines()
    assert len(pids) == starts and len(set(pids)) == 1, ended.stderr
    assert last == f"{used} ['--flag', 'a word']"


HOLDER = """
import psutil
from oni_jax.host.runtime import return_memory
blocks = [bytearray(b"x") * 65536 for _ in range(1000)]
del blocks[: -1]  # the last one lies above the others
before = psutil.Process().memory_info().rss
return_memory()
print(before - psutil.Process().memory_info().rss)
"""


def test_memory_that_nobody_uses_is_given_back():
    ended = subprocess.run([sys.executable, "-c", HOLDER], capture_output=True, text=True, check=True)
    assert int(ended.stdout) > 40e6


def send(process: subprocess.Popen, *numbers: int, pause_secs: float = 0.3) -> None:
    """Decision one by one, so far apart that each is seen by itself."""
    assert process.stdout and process.stdout.readline() == "ready\n"
    for number in numbers:
        process.send_signal(number)
        time.sleep(pause_secs)


@pytest.fixture
def start():
    """Starts a program in a separate process group."""
    started: list[subprocess.Popen] = []

    def start(program: str) -> subprocess.Popen:
        command, pipe = [sys.executable, "-u", "-c", program], subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def hang_up():
    """SIGHUP as a terminal's programs have it, also where nohup started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_each_stop_signal_sets_the_request_and_only_sigusr1_can_ask_for_a_save_instead(hang_up):
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    for number in STOP_SIGNALS:
        with StopRequest().installed() as stop:
            assert not stop
            signal.raise_signal(number)
            assert stop and stop.reason == signal.Signals(number).name and not stop.save_due
    with StopRequest().installed() as stop:
        stop.usr1_saves = True
        signal.raise_signal(signal.SIGUSR1)
        assert stop.save_due and not stop
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
            assert stop.reason == "SIGTERM"
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_a_hang_up_is_passed_over_where_it_was_ignored_as_by_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest().installed() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


ENDING = """
import threading, time
from oni_jax.host.runtime import StopRequest
with StopRequest().installed(until_exit=True):
    print("ready")
    time.sleep(0.2)
threading.Thread(target=time.sleep, args=(0.2,)).start()  # Python waits for it
"""


def test_stop_signals_that_never_cease_do_not_kill_a_program_that_ends(start):
    process = start(ENDING)
    send(process)
    while process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            process.send_signal(number)
        time.sleep(0.001)
    assert process.returncode == 0  # Python may say of one that it was "ignored due to race condition"


TIDYING = """
import time
from oni_jax.host.runtime import StopRequest
with StopRequest().installed() as stop:
    try:
        print("ready")
        while True:
            time.sleep(0.01)
    finally:
        time.sleep(1)
        print(stop.reason, "tidied up")
"""


def test_a_second_interrupt_leaves_without_waiting_and_a_third_does_not_disturb_it(start):
    process = start(TIDYING)
    send(process, signal.SIGINT, signal.SIGINT, signal.SIGINT, pause_secs=0.1)
    output, error = process.communicate(timeout=20)
    assert output == "SIGINT tidied up\n" and error.endswith("KeyboardInterrupt: interrupted twice: left at once\n")


def test_a_second_interrupt_that_comes_in_a_callback_is_not_lost():
    with pytest.raises(KeyboardInterrupt), StopRequest().installed():
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)


STUCK = """
import hashlib
from oni_jax.host.runtime import StopRequest
with StopRequest().installed() as stop:
    stop.awaits("the sum is made")
    print("ready")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # minutes, in which Python runs no handler
"""


def test_a_second_interrupt_ends_what_cannot_be_interrupted_and_a_first_does_not(start):
    process = start(STUCK)
    send(process, signal.SIGINT, signal.SIGTERM, pause_secs=0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    output, error = process.communicate(timeout=20)
    assert error == "interrupted twice: left at once\n" and time.monotonic() - started < runtime.LEAVE_SECS
    assert process.returncode == 130
    assert output == "SIGINT: ends when the sum is made; Ctrl-C again ends at once\n"


READS = """
import time
from oni_jax.host.runtime import StopRequest
with StopRequest().installed() as stop:
    print("ready")
    while not stop:
        time.sleep(0.01)
    time.sleep(1)
"""


def test_stop_request_that_is_read_is_not_answered_by_what_the_program_waits_for(start):
    process = start(READS)
    send(process, signal.SIGTERM)
    assert process.communicate(timeout=20) == ("", "")


BUSY = """
import hashlib, time
from oni_jax.host import runtime
from oni_jax.host.runtime import StopRequest
runtime.HEARD_SECS = 10
start = time.perf_counter()
hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)
of_two_secs = int(200_000 / (time.perf_counter() - start))
with StopRequest().installed():
    print("ready")
    hashlib.pbkdf2_hmac("sha256", b"", b"", of_two_secs)
    print("went on")
"""


def test_two_interrupts_that_come_while_python_runs_no_handler_are_two(start):
    process = start(BUSY)
    send(process, signal.SIGINT, signal.SIGINT, pause_secs=0.3)
    output, error = process.communicate(timeout=20)
    assert output == "" and error.endswith("KeyboardInterrupt: interrupted twice: left at once\n"), output


def answer(connection: Connection) -> None:
    connection.send_bytes(b"alive")
    connection.recv_bytes()


def start_children() -> None:
    """Its whole process group gets each stop signal as soon as it has a child, which then answers."""
    with StopRequest().installed() as stop:
        stop.awaits("")
        child = start_child("child", answer)
        for number in STOP_SIGNALS:
            os.killpg(0, number)
        print(child[1].recv_bytes().decode(), stop.reason)
        stop_child(*start_child("another", answer))  # warns if multiprocessing's helper has died
        stop_child(*child)


def test_no_signal_reaches_a_child_even_while_it_starts(start):
    process = start("from tests.host.test_runtime import start_children; start_children()")
    output, error = process.communicate(timeout=30)
    assert output.startswith("alive SIG") and error == "" and process.returncode == 0


def tell_environment(connection: Connection) -> None:
    connection.send([os.environ.get(name) for name in ("JAX_PLATFORMS", "OMP_NUM_THREADS")])


def test_threads_start_children_at_once_and_leave_the_environment(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = dict(os.environ)

    def start_one(number: int) -> list[str | None]:
        process, connection = start_child(f"child-{number}", tell_environment, single_threaded=bool(number % 2))
        told = connection.recv()
        stop_child(process, connection)
        return told

    with ThreadPoolExecutor(4) as threads:
        told = list(threads.map(start_one, range(4)))
    assert told == [["cpu", "1" if number % 2 else None] for number in range(4)] and dict(os.environ) == before


def test_the_commit_is_of_the_program_s_repository(tmp_path):
    package = tmp_path / "oni_jax"
    installed = pathlib.Path(runtime.__file__).parents[1]
    for name in ("host/runtime.py", "host/limits.py", "host/reporting.py", "settings/fields.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(installed / name, package / name)

    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        return subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    def told() -> str:
        code = "from oni_jax.host.runtime import code_commit; print(code_commit())"
        command = [sys.executable, "-c", code]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    assert told() == ""
    git("init")
    assert told() == ""  # installed in a folder inside a repository of something else
    git("add", "oni_jax")
    git("commit", "--message", "first")
    commit = git("rev-parse", "HEAD").strip()
    assert told() and commit.startswith(told())
    (package / "settings/fields.py").write_text((package / "settings/fields.py").read_text() + "\n")
    assert told() == f"{commit[: len(told()) - len('-dirty')]}-dirty"


def test_program_that_cannot_start_anew_goes_on(tmp_path):
    """As another user's, whose Python it may not start."""
    program = f"import sys; sys.executable = {str(tmp_path / 'python')!r}\n{PROGRAM}".replace("GLIBC_TUNABLES", "HOME")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0 and len(ended.stdout.splitlines()) == 2, ended.stderr


def test_children_compute_on_the_cpu(monkeypatch):
    """Whatever the parent has: an actor would take memory of its accelerator."""
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    process, connection = start_child("child", tell_platforms)
    assert connection.recv() == "cpu" and os.environ["JAX_PLATFORMS"] == "cuda"
    stop_child(process, connection)


def tell_platforms(connection: Connection) -> None:
    connection.send(os.environ["JAX_PLATFORMS"])
