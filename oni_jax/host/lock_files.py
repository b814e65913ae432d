"""Locks for disks without `flock` or byte-range locks, as some of NFS, Lustre, GPFS and AFS; and what a disk lacks.

A process that wants a lock makes a file whose name says who it is, and then looks for those of others. No two processes
make the same name, so that each removes what a dead one left without harm to a third. A process of this machine is
alive or not; one of another is believed dead when its file, which it touches now and then, grows old.
"""

import contextlib
import errno
import fcntl
import functools
import hashlib
import mmap
import os
import random
import re
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from typing import NamedTuple

STALE_SECS = 60.0  # age at which the file of another machine's process counts for nothing
_TOUCH_SECS = 10.0
_HOLDER = re.compile(r"(?P<host>.+)\.(?P<machine>[0-9a-f]{8})\.(?P<process>\d+)\.(?P<start>\d+)\.[0-9a-f]{8}")
_SQLITE_LOCKS = 0x4000_0000, 512  # first byte, and number of bytes, that SQLite locks of a database
_INDEX_LOCKS, _INDEX_BYTES = (120, 8), 32768  # locks of the index of its write-ahead log


class Disk(NamedTuple):
    """Abilities of a disk, for the processes that use a database on it."""

    has_locks: bool = True  # byte-range locks
    shares_memory: bool = True  # maps that processes share, and locks on them


@contextlib.contextmanager
def lock_file(path: str, wait_secs: float = 0.0) -> Iterator[None]:
    """Holds the lock `path`, which lies in files of longer names.

    Raises:
        BlockingIOError: another process holds it, `wait_secs` long.
        OSError: no file can be made there.
    """
    deadline = time.monotonic() + wait_secs
    while holder := _try_lock(path, ours := f"{path}.{_this_process()}.{uuid.uuid4().hex[:8]}"):
        if time.monotonic() >= deadline:
            raise BlockingIOError(errno.EAGAIN, f"in use by {holder}", path)
        time.sleep(random.uniform(0.005, 0.05))  # two that wait for each other must not go on in step
    is_released = threading.Event()
    threading.Thread(target=_touch, args=(ours, is_released), name="lock", daemon=True).start()
    try:
        yield
    finally:
        is_released.set()
        with contextlib.suppress(OSError):
            os.remove(ours)


def lock_holder(path: str) -> str:
    """Returns who holds the lock `path`, in words; empty: nobody."""
    return next((words for words, is_held in _holders(path, time.time()).values() if is_held), "")


def probe_disk(path: str) -> Disk:
    """Tries locks and shared memory as SQLite would use them for a database at `path`.

    The files tried have the same names, in a folder beside it. Where none can be made, the disk counts as able.
    """
    with contextlib.suppress(OSError):
        with tempfile.TemporaryDirectory(prefix="oni_jax_probe_", dir=os.path.dirname(path)) as folder:
            name = os.path.join(folder, os.path.basename(path))
            has_locks = _can_lock(name, *_SQLITE_LOCKS)
            return Disk(has_locks, has_locks and _can_lock(f"{name}-shm", *_INDEX_LOCKS, _INDEX_BYTES))
    return Disk()


def _can_lock(path: str, start: int, length: int, map_bytes: int = 0) -> bool:
    with open(path, "w+b") as file:
        file.truncate(map_bytes)
        try:
            for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN):
                fcntl.lockf(file, kind | (fcntl.LOCK_NB if kind != fcntl.LOCK_UN else 0), length, start)
            if map_bytes:
                mmap.mmap(file.fileno(), map_bytes).close()  # untouched: on a full disk, a page of it would kill
        except OSError:
            return False
    return True


def _try_lock(path: str, ours: str) -> str:
    """Makes our file, and leaves it there if nobody else holds the lock. Returns who does."""
    os.close(os.open(ours, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        holder = ""
        # The disk's clock, which our file's time shows, may not be this machine's.
        for other, (words, is_held) in _holders(path, os.stat(ours).st_mtime, ours).items():
            if is_held:
                holder = words
            else:
                with contextlib.suppress(OSError):
                    os.remove(other)
    except BaseException:
        os.remove(ours)
        raise
    if holder:
        os.remove(ours)
    return holder


def _holders(path: str, now: float, ours: str = "") -> dict[str, tuple[str, bool]]:
    """Returns file -> who made it, and whether that process holds the lock, for all files but ours."""
    folder, name = os.path.split(path)
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            who = _HOLDER.fullmatch(entry.name.removeprefix(f"{name}."))
            if who and entry.name.startswith(f"{name}.") and entry.path != ours:
                words = f"process {who['process']} of {who['host']}"
                found[entry.path] = words, _is_held(entry.path, now, who["machine"], who["process"], who["start"])
    return found


def _is_held(path: str, now: float, machine: str, process: str, start: str) -> bool:
    if machine == _machine() and start != "0":
        return _start(process) == start
    try:
        return now - os.stat(path).st_mtime < STALE_SECS
    except FileNotFoundError:
        return False


def _touch(path: str, is_released: threading.Event) -> None:
    while not is_released.wait(_TOUCH_SECS):
        with contextlib.suppress(OSError):
            os.utime(path)


def _this_process() -> str:
    return f"{socket.gethostname()}.{_machine()}.{os.getpid()}.{_start('self')}"


@functools.cache
def _machine() -> str:
    """Returns a hash of this host, since it was booted, and of the container whose numbers its processes have."""
    words = [socket.gethostname()]
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        words += [file.read(), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:8]


def _start(process: str) -> str:
    """Returns when a process started, in the kernel's ticks; 0 if it has ended, or the kernel does not say."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            state, *fields = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return "0"
    return "0" if state in (b"Z", b"X") else fields[18].decode()
