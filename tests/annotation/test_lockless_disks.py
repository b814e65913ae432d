"""The label store on disks without shared memory, and without locks."""

import errno
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from oni_jax.annotation.label_store import LabelStore
from oni_jax.types import Annotation
from tests.support.lockless_disk import lockless_environment

WRITER = """
import sys
from oni_jax.annotation.label_store import LabelStore
from oni_jax.types import Annotation
path, name, number = sys.argv[1:]
store = LabelStore(path)
store.check_writable()
for i in range(int(number)):
    store.put_many("m", "d", [(Annotation((f"{name} {i}".encode(),), b"1 1.0"), "")])
    assert store.get_many("m", "d", [(f"{name} {i}".encode(),)])
    print(i, flush=True)
"""

# Parts of a store that can't be locked, and what its opening says.
DISKS = pytest.mark.parametrize(
    ("name", "lack"), [(".sqlite-shm", "has no shared memory"), (".sqlite", "has no locks")], ids=["index", "all"]
)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk" / "labels.sqlite"


def start(environment: dict[str, str], path: pathlib.Path, name: str, number: int) -> subprocess.Popen:
    command = [sys.executable, "-c", WRITER, str(path), name, str(number)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@DISKS
@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EINVAL, errno.EOPNOTSUPP])
def test_store_is_shared_by_processes(tmp_path, path, name, lack, error):
    environment = lockless_environment(tmp_path, name, error)
    writers = [start(environment, path, word, 30) for word in ("a", "b")]
    for writer in writers:
        out, err = writer.communicate(timeout=60)
        assert writer.returncode == 0, err
        assert out.splitlines()[0].startswith(f"label store {path}: its disk {lack}")
    assert LabelStore(str(path)).count("m", "d") == 60
    assert {name for name in os.listdir(path.parent) if "lock" in name or "probe" in name} == set()


@DISKS
def test_killed_writer_loses_no_committed_answer(tmp_path, path, name, lack):
    environment = lockless_environment(tmp_path, name, errno.ENOLCK)
    committed = 0
    for turn in range(3):
        writer = start(environment, path, f"turn {turn}", 100_000)
        assert writer.stdout
        numbers = iter(writer.stdout.readline, "")
        while next(numbers).strip() != str(10 + 7 * turn):
            pass
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate(timeout=60)[0].split()
        committed += 1 + (int(rest[-1]) if rest else 10 + 7 * turn)
    last = start(environment, path, "last", 1)
    assert last.wait(timeout=60) == 0
    assert LabelStore(str(path)).count("m", "d") >= committed + 1  # more may be committed than were printed and read


@DISKS
def test_write_ahead_log_of_another_disk_is_read(tmp_path, path, name, lack):
    elsewhere = tmp_path / "labels.sqlite"
    store = LabelStore(str(elsewhere))
    store.put_many("m", "d", [(Annotation((b"from elsewhere",), b"1 1.0"), "")])
    for file in (elsewhere, elsewhere.with_name("labels.sqlite-wal")):  # as of a process that was killed
        shutil.copy(file, path.parent)
    store.close()
    assert path.with_name("labels.sqlite-wal").stat().st_size
    writer = start(lockless_environment(tmp_path, name, errno.EINVAL), path, "here", 1)
    assert writer.wait(timeout=60) == 0, writer.communicate()
    assert LabelStore(str(path)).count("m", "d") == 2
