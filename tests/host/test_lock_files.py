"""Locks of files' names: one holder, alive or seen lately."""

import os
import subprocess
import sys
import time

import pytest

from oni_jax.host.lock_files import STALE_SECS, Disk, lock_file, lock_holder, probe_disk

HOLDER = """
import sys
from oni_jax.host.lock_files import lock_file
with lock_file(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def of_another_machine(path: str, age_secs: float) -> str:
    made = f"{path}.node7.0123abcd.12.345.89abcdef"
    open(made, "w").close()
    os.utime(made, (time.time() - age_secs,) * 2)
    return made


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "lock")


def test_lock_has_one_holder_and_a_dead_one_counts_for_nothing(path):
    command, pipe = [sys.executable, "-c", HOLDER, path], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        assert lock_holder(path).startswith(f"process {holder.pid} of ")
        with pytest.raises(BlockingIOError, match=f"in use by process {holder.pid} of "), lock_file(path):
            pass
        holder.kill()
    assert os.listdir(os.path.dirname(path)) and lock_holder(path) == ""
    with lock_file(path):
        assert len(os.listdir(os.path.dirname(path))) == 1
        with pytest.raises(BlockingIOError), lock_file(path, wait_secs=0.1):  # this process's, too
            pass
    assert os.listdir(os.path.dirname(path)) == []


def test_lock_of_another_machine_grows_old(path):
    made = of_another_machine(path, STALE_SECS - 20)
    assert lock_holder(path) == "process 12 of node7"
    with pytest.raises(BlockingIOError), lock_file(path):
        pass
    os.utime(made, (time.time() - STALE_SECS - 20,) * 2)
    assert lock_holder(path) == ""
    with lock_file(path):
        assert not os.path.exists(made)


def test_files_of_similar_names_are_no_locks(path):
    for name in ("", ".partial", "-lock.node7.0123abcd.12.345.89abcdef", ".node7.0123abcd.12.345"):
        open(path + name, "w").close()
    assert lock_holder(path) == ""
    with lock_file(path):
        pass
    assert len(os.listdir(os.path.dirname(path))) == 4


def test_local_disk_has_locks_and_shared_memory(tmp_path):
    assert probe_disk(str(tmp_path / "labels.sqlite")) == Disk(True, True) and os.listdir(tmp_path) == []
    assert probe_disk(str(tmp_path / "missing" / "labels.sqlite")) == Disk(True, True)
