"""File operations that survive full disks and killed processes."""

import contextlib
import errno
import fcntl
import functools
import glob
import io
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import weakref

from oni_jax.settings.fields import UserError


def write_atomically(path: str | os.PathLike, data: bytes | memoryview) -> None:
    """Replaces the file at `path` atomically; an error leaves it as it was. Raises OSError."""
    with _partial_file(f"{os.fspath(path)}.partial") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # otherwise a power cut could leave the new name without its contents
            os.replace(file.name, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(file.name)
            raise


def _partial_file(path: str) -> io.BufferedWriter:
    """Opens an empty file of this name, or of a longer one while another process writes this one. Raises OSError."""
    while True:
        file, is_free = open(path, "ab", opener=_regular), True
        with contextlib.suppress(OSError):  # a disk without locks
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                path, is_free = f"{path}~", False
        if is_free and names(path, file.fileno()):  # the other one may have finished it meanwhile
            file.truncate(0)
            return file
        file.close()


def names(path: str, file: int) -> bool:
    """Returns whether a path names an open file. A disk that does not answer counts as if it did."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        return os.path.samestat(found, os.fstat(file))
    except OSError:  # another host has removed it
        return False


def open_regular(path: str | os.PathLike, follows_links: bool = False) -> io.BufferedReader:
    """Opens a file that somebody else may have put there. A pipe or a device is not waited for.

    Raises:
        OSError: it can't be read, or is no regular file; so is a link, unless these are followed.
    """
    return open(path, "rb", opener=functools.partial(_regular, follows_links=follows_links))


def read_regular(path: str | os.PathLike, max_bytes: int, follows_links: bool = False) -> bytes:
    """Returns the content of a file, see `open_regular`. Raises OSError: also for one that is larger."""
    with open_regular(path, follows_links) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", os.fspath(path))
    return content


def open_to_append(path: str | os.PathLike) -> io.FileIO:
    """Opens a file to append and to read, unbuffered, and makes it if it is missing. Raises OSError: see above."""
    return open(path, "ab+", buffering=0, opener=_regular)


def _regular(path: str | os.PathLike, flags: int, follows_links: bool = False) -> int:
    try:
        file = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | (0 if follows_links else os.O_NOFOLLOW), 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise OSError(error.errno, "it is a link or no regular file", os.fspath(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    return file


def check_regular(folder: str) -> None:
    """Raises OSError: a folder is a link, or holds something else than regular files and folders, at any depth."""
    if os.path.islink(folder):
        raise OSError(errno.EINVAL, "it is a link", folder)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                check_regular(entry.path)
            elif not entry.is_file(follow_symlinks=False):
                raise OSError(errno.EINVAL, f"{entry.name} is a link or no regular file", entry.path)


def append_atomically(file: io.FileIO, data: bytes) -> None:
    """Appends to an unbuffered file; an error leaves it as it was. Raises OSError with the file's name."""
    end = file.seek(0, os.SEEK_END)
    try:
        if file.write(data) != len(data):  # as on a disk that becomes full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        file.truncate(end)
        raise OSError(error.errno, error.strerror, file.name) from None


def reserve(path: str | os.PathLike, num_bytes: int) -> None:
    """Makes a file at least `num_bytes` long, and allocates its disk space. Raises OSError.

    Writing through a memory map where disk space is missing would kill the process (SIGBUS).
    """
    with open(path, "r+b") as file:
        there, disk = os.fstat(file.fileno()), os.fstatvfs(file.fileno())
        if num_bytes - 512 * there.st_blocks > disk.f_frsize * disk.f_bavail:  # before it is filled up
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        elif there.st_size < num_bytes:
            file.truncate(num_bytes)


def check_output(flag: str, path: str) -> None:
    """Raises UserError, naming the flag, when no file can be written at `path`; called before the work for it."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UserError(f"--{flag} {path}: there is no folder {folder}; make it, or name another file")
    # Writing replaces what is there, even a link or a device.
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        raise UserError(f"--{flag} {path}: is no regular file; name another")
    if not os.access(folder, os.W_OK):
        raise UserError(f"--{flag} {path}: no file can be made in {folder}; name another")


def write_output(flag: str, path: str, data: bytes) -> None:
    """Writes a file atomically. Raises UserError, naming the flag."""
    try:
        write_atomically(path, data)
    except OSError as error:
        raise UserError(f"--{flag} {path}: can't be written ({error.strerror}); name another file") from None


def keep_printing() -> None:
    """Makes stdout and stderr drop what can't be written, instead of raising an error wherever something is printed.

    Examples: a full disk, a pipe without a reader, a terminal that is gone. Characters that the encoding lacks are
    escaped.
    """
    for number in range(3):  # closed ones become /dev/null, or the next file to be opened would take their place
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # children too
    for number, name in enumerate(("stdout", "stderr"), 1):
        stream = getattr(sys, name)  # None: it was closed
        raw = io.BufferedWriter(_LossyFile(stream.fileno() if stream else number, "w", closefd=False))
        encoding = stream.encoding if stream else "utf-8"
        setattr(sys, name, io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=True))


class _LossyFile(io.FileIO):
    def write(self, data) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE, errno.EIO):
                raise
            return len(data)


class ScratchFolder:
    """A folder for the temporary files of this process, removed when it is closed or the process ends.

    A killed process can't remove its folder: the next process with the same `parent` does, and kills those that still
    use it. A lock, which the kernel drops however a process ends, marks folders in use. The host's name is in the
    folder's, since not every network file system shows locks to other hosts.

    Args:
        parent: folder; None: Python's for temporary files.

    Raises:
        UserError: it can't be made.
    """

    def __init__(self, parent: str | None = None):
        try:
            parent = parent or tempfile.gettempdir()
        except OSError as error:
            raise UserError(f"there is no folder for temporary files ({error.strerror}); set $TMPDIR") from None
        prefix = f"oni_jax_scratch_{socket.gethostname()}_"
        _remove_dead(parent, prefix)
        while True:
            try:
                self.path = tempfile.mkdtemp(prefix=prefix, dir=parent)
            except OSError as error:
                raise UserError(f"{parent}: can't make temporary files there ({error.strerror}); set $TMPDIR") from None
            try:
                lock = _open_folder(self.path)
            except FileNotFoundError:
                continue  # another process removed it before it was locked
            with contextlib.suppress(OSError):  # a disk without locks: no process removes it either
                fcntl.flock(lock, fcntl.LOCK_SH)
            if os.path.isdir(self.path):
                break
            os.close(lock)
        self.close = weakref.finalize(self, _remove, self.path, lock)


def _remove_dead(parent: str, prefix: str) -> None:
    found: list[os.DirEntry] = []
    with contextlib.suppress(OSError), os.scandir(parent) as entries:  # it may be one that can't be listed
        found += [entry for entry in entries if entry.name.startswith(prefix)]
    for entry in found:
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                lock = _open_folder(entry.path)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its process lives
                    _kill_users(entry.path)
                    shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(lock)


def _kill_users(folder: str) -> None:
    """Kills the processes that have files open in a dead process's folder: its children, if stopped or hung."""
    folder = os.path.realpath(folder)
    for link in glob.glob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(f"{folder}/"):
                os.kill(int(link.split("/")[2]), signal.SIGKILL)


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _remove(folder: str, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
