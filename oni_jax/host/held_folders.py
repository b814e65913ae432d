"""Folders that one program writes at a time, and that are watched while it does.

Three locks keep a second program out. A file in the folder is locked, which a folder that is renamed takes along, and
which other hosts see. A hidden file beside the folder is locked, which stays when the folder goes. A socket has the
folder's path for its name, which stays on this host when the disk's files go.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator

from oni_jax.host.files import names
from oni_jax.host.lock_files import STALE_SECS, lock_file, lock_holder
from oni_jax.host.reporting import report
from oni_jax.host.run_files import LOCK
from oni_jax.host.runtime import FolderGoneError, StopRequest
from oni_jax.settings.fields import UserError

LOOK_SECS = 0.1  # longer than `is_held` holds a lock
WATCH_SECS = 0.25
MAX_LOCK_TRIES = 100


class HeldFolder:
    """A folder by what it is, since it may lose its name.

    Args:
        path: of a folder.

    Raises:
        OSError: there is none.
    """

    def __init__(self, path: str):
        self.path = os.path.abspath(path)
        self._saved = ""
        self._file = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        self.close = weakref.finalize(self, os.close, self._file)

    def is_there(self) -> bool:
        """Returns whether its path still names it; see `names`."""
        return names(self.path, self._file)

    def where(self) -> str:
        """Returns its path of now; empty: it was removed, or the system does not say where it is."""
        if self.is_there():
            return self.path
        with contextlib.suppress(OSError):
            found = os.readlink(f"/proc/self/fd/{self._file}")
            return found if os.path.isdir(found) and names(found, self._file) else ""
        return ""

    def save_in(self) -> str:
        """Returns where to save: its path of now, or that of a new folder if it was removed. Raises OSError."""
        if now := self.where():
            return now
        self._saved = self._saved or _new_folder(f"{self.path}.saved")
        return self._saved

    def problem(self) -> str:
        """Returns how it was lost, in words; empty: it was not."""
        if self.is_there():
            return ""
        now = self.where()
        return f"{self.path} was {f'renamed to {now}' if now else 'removed'} while it was written"

    @contextlib.contextmanager
    def saving(self, save: Callable[[str], None]) -> Iterator[None]:
        """Saves what would be lost with the folder: `save(folder)` writes it elsewhere.

        Raises:
            FolderGoneError: it was lost meanwhile.
        """
        try:
            yield
            self.check()
        except (OSError, UserError, FolderGoneError) as error:
            if not (problem := self.problem()):
                raise
            try:
                save(folder := self.save_in())
            except (OSError, UserError) as failure:
                raise FolderGoneError(f"{problem}, and nothing could be saved ({failure})") from error
            raise FolderGoneError(f"{problem}: {folder} holds what was there so far") from error

    def check(self, cause: Exception | None = None) -> None:
        """Raises FolderGoneError: it was lost."""
        if problem := self.problem():
            raise FolderGoneError(problem) from cause


@contextlib.contextmanager
def held_folder(
    path: str, flag: str, stop: StopRequest | None = None, above: str = "", part: str = ""
) -> Iterator[HeldFolder]:
    """Makes a folder, keeps other programs out, and watches it.

    Args:
        path: of the folder.
        flag: that names it.
        stop: fails as soon as the folder is lost, with a line.
        above: flag that names the folder above it, if there is one.
        part: of the folder's content, which this program writes; other parts may be written by other programs.

    Raises:
        UserError: it can't be written, or another program writes it.
        FolderGoneError: it was renamed or removed meanwhile; also in place of the errors that this led to.
    """
    path = os.path.abspath(path)
    with contextlib.ExitStack() as stack:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            stack.enter_context(held_name(path, flag, part))
            stack.enter_context(_lock_beside(path, flag, part))
            os.makedirs(path, exist_ok=True)
            lock = None if part else _FileLock(os.path.join(path, LOCK), path, flag)
            if lock:
                stack.callback(lock.close)
            held = stack.enter_context(contextlib.closing(HeldFolder(path)))
        except OSError as error:
            raise UserError(f"--{above or flag}: {path} can't be written ({error.strerror}); choose another") from None
        stack.enter_context(_watched(held, lock, stop))
        yield held


@contextlib.contextmanager
def watched_folder(path: str, stop: StopRequest | None = None) -> Iterator[HeldFolder]:
    """Watches a folder that only this program knows; `stop` and errors as for `held_folder`."""
    with contextlib.closing(HeldFolder(path)) as held, _watched(held, None, stop):
        yield held


@contextlib.contextmanager
def held_name(path: str, flag: str, part: str = "") -> Iterator[None]:
    """Keeps other programs of this host, that see the same disks, from a path, whatever is there.

    Args:
        path: absolute.
        flag: that names it.
        part: of what is there; other parts may be written by other programs.

    Raises:
        UserError: another program has it.
    """
    with contextlib.ExitStack() as stack:
        try:
            key = f"{os.readlink('/proc/self/ns/mnt')} {_real(path)}\n{part}"
            lock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            lock.bind(f"\0oni_jax {_digest(key)}")  # a name that is no file's, and which goes with the process
        except OSError as error:  # other systems than Linux have no such names
            if error.errno == errno.EADDRINUSE:
                raise _in_use(path, flag) from None
        yield


def is_held(folder: str) -> bool:
    """Returns whether a program writes a folder."""
    path = os.path.join(folder, LOCK)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)  # it may be a pipe
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a disk without locks
        return bool(lock_holder(path))
    finally:
        os.close(descriptor)
    return False


class _FileLock:
    """A locked file, which is made if it is missing.

    Args:
        path: of the file.
        of: path that it stands for.
        flag: that names the latter.
        is_passing: it is removed at the end.

    Raises:
        UserError: another program has locked it.
        OSError: it can't be made.
    """

    def __init__(self, path: str, of: str, flag: str, is_passing: bool = False):
        self._path, self._of, self._flag, self._is_passing = path, of, flag, is_passing
        self._held = contextlib.ExitStack()
        self._file = -1
        self.keep()

    def keep(self) -> None:
        """Takes it again if its file was removed or replaced. Raises as the constructor does."""
        for _ in range(MAX_LOCK_TRIES):  # a passing one may be removed by its holder before it is locked here
            if self._file >= 0 and names(self._path, self._file):
                return
            self._held.close()
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            self._held.callback(os.close, self._file)
            try:
                self._take()
            except BaseException:
                self._held.close()
                self._file = -1
                raise
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), self._path)

    def close(self) -> None:
        if self._is_passing and self._file >= 0 and names(self._path, self._file):
            with contextlib.suppress(OSError):
                os.remove(self._path)
        self._held.close()

    def _take(self) -> None:
        # The kernel drops it however the process ends. Of a file, as NFS hands on no lock of a folder to other hosts.
        for is_last in (False, True):
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if is_last:
                    raise _in_use(self._of, self._flag) from None
                time.sleep(LOOK_SECS)
            except OSError as error:
                return self._take_without_locks(str(error.strerror))

    def _take_without_locks(self, reason: str) -> None:
        try:
            self._held.enter_context(lock_file(self._path))
        except BlockingIOError as error:
            hint = f", or wait {STALE_SECS:.0f} s where its host is gone"
            raise _in_use(self._of, self._flag, f" ({error.strerror})", hint) from None
        if not self._is_passing:
            name = os.path.basename(self._path)
            report(f"{self._of}: its disk has no locks ({reason}): a file {name}.* keeps other runs out")


@contextlib.contextmanager
def _lock_beside(path: str, flag: str, part: str) -> Iterator[None]:
    folder, name = os.path.split(_real(path))
    suffix = f".{_digest(part)[:8]}.lock" if part else ".lock"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no file can be made there: the other locks remain
            beside = _FileLock(os.path.join(folder, f".{name}{suffix}"), path, flag, is_passing=True)
            stack.enter_context(contextlib.closing(beside))
        yield


@contextlib.contextmanager
def _watched(held: HeldFolder, lock: _FileLock | None, stop: StopRequest | None) -> Iterator[None]:
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(held, lock, stop, ended), name="folder", daemon=True)
    watch.start()
    try:
        yield
        held.check()
    except (OSError, UserError) as error:
        held.check(error)
        raise
    finally:
        ended.set()
        watch.join(1.0)


def _watch(held: HeldFolder, lock: _FileLock | None, stop: StopRequest | None, ended: threading.Event) -> None:
    """Looks at a folder until it is lost, of which it informs the program and its user."""
    problem = ""
    while not problem and not ended.wait(WATCH_SECS):
        if held.is_there():
            try:
                if lock:
                    lock.keep()
            except UserError as error:
                problem = str(error)
            except OSError:  # a full disk
                pass
        elif not ended.wait(LOOK_SECS):  # it may be on its way back
            problem = held.problem()
    if problem:
        report(f"warning: {problem}")
        if stop is not None:
            stop.fail(FolderGoneError(problem), "its folder is lost")


def _real(path: str) -> str:
    """Returns a path without links above it."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def _new_folder(path: str) -> str:
    while os.path.lexists(path):
        path += "~"
    os.makedirs(path)
    return path


def _in_use(path: str, flag: str, holder: str = "", hint: str = "") -> UserError:
    return UserError(f"{path} is in use by another run{holder}; choose another --{flag}{hint}")


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()
