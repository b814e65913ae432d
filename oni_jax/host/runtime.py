"""Supervised child processes, stop requests, and clocks."""

import ctypes
import errno
import functools
import os
import platform
import resource
import select
import signal
import subprocess
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from oni_jax.host.limits import core_limit, memory_limit
from oni_jax.host.reporting import report
from oni_jax.settings.fields import UserError, printable

LOWEST_PRIORITY = 19  # niceness
_SPAWN = get_context("spawn")
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
KILL_SECS = 5.0  # time for a killed process to end; one that waits for a dead disk does not
LEAVE_SECS = 3.0  # grace period after a second SIGINT
HEARD_SECS = 0.5  # time for a program to handle a signal; one that compiles does not
LEFT_AT_ONCE = "interrupted twice: left at once"


class ChildError(RuntimeError):
    """A child process failed; the text is its traceback, its UserError, or the exit code."""


class UnsavedError(RuntimeError):
    """The last save of a run failed; the text says what is lost."""


class FolderGoneError(UnsavedError):
    """The folder that a program wrote was renamed or removed meanwhile."""


def ending(error: BaseException) -> tuple[int, str]:
    """Returns exit code and last line of a program that an error ends; an empty line for an unexpected error."""
    if isinstance(error, UserError):
        return 2, f"error: {' '.join(str(error).split())}"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return 2, f"error: too many open files: {most:,} are allowed; raise `ulimit -n`, or lower --num_workers"
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        where = f"{error.filename} can't be written" if error.filename else "shared memory or a file can't be made"
        return 1, printable(f"error: {where} ({error.strerror}); make room, and start the same command again")
    if isinstance(error, KeyboardInterrupt):
        return 130, str(error) or "interrupted"
    return 1, f"error: {error}" if isinstance(error, ChildError | UnsavedError) else ""


def memory_bytes() -> int:
    """Returns the machine's memory, or as much of it as control groups and Slurm leave this process."""
    return int(min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), memory_limit()))


def num_cores() -> int:
    """Returns the number of cores that this process may use, by its affinity, control groups and Slurm."""
    return int(min(len(os.sched_getaffinity(0)), core_limit()))


def return_memory() -> None:
    """Returns memory that glibc holds free to the system: a tenth of a program's, and more by the hour.

    Takes a tenth of a second at most.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


_STARTING = threading.Lock()  # the environment's variables are those of all threads


def start_child(
    name: str,
    body: Callable[..., None],
    *args: object,
    single_threaded: bool = False,
    cleans_up: bool = False,
    niceness: int = 0,
) -> tuple[BaseProcess, Connection]:
    """Starts `body(connection, *args)` in a new process. Returns it and this side of the connection.

    STOP_SIGNALS never reach the child: its parent stops it by closing the connection. When the parent is killed,
    so is the child, unless it `cleans_up`: then it exits when it finds the connection closed.
    `single_threaded` keeps NumPy's BLAS from starting threads in it. A `niceness` of 19 has it run when others idle.
    JAX, where the child uses it, computes on the CPU.
    """
    ours, theirs = _SPAWN.Pipe()
    how = name, body, theirs, args, cleans_up, niceness
    process = _SPAWN.Process(target=_child_main, args=how, name=name, daemon=True)
    variables = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} if single_threaded else {}
    with _STARTING, _environment({**variables, "JAX_PLATFORMS": "cpu"}), _sigmask():
        process.start()
    theirs.close()
    return process, ours


def _child_main(
    name: str, body: Callable[..., None], connection: Connection, args: tuple, cleans_up: bool, niceness: int
) -> None:
    _prctl(_PR_SET_NAME, name.encode())  # name in `top` and `ps`
    os.nice(niceness)
    if not cleans_up:
        die_with_parent(parent.pid if (parent := parent_process()) else None)
    try:
        body(connection, *args)
    except BaseException as error:
        if isinstance(error, EOFError | OSError | UserError) and has_hung_up(connection):
            return
        text = f"{name}: {error}" if isinstance(error, UserError) else f"{name} failed:\n{traceback.format_exc()}"
        try:
            connection.send_bytes(text.encode())
        except OSError:
            report(text, to_stderr=True)
        os._exit(1)


def has_hung_up(connection: Connection) -> bool:
    """Returns whether the other side of a connection has closed it, or its process has ended."""
    poll = select.poll()
    poll.register(connection, 0)  # a hang-up is always reported
    return bool(poll.poll(0))


def die_with_parent(parent: int | None = None) -> None:
    """Has the kernel kill this process when the thread that started it ends; ends it if that `parent` is gone already.

    A no-op outside Linux.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if sys.platform == "linux" and parent not in (None, os.getppid()):
        os._exit(1)


def _prctl(option: int, value: int | bytes) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def is_stopped(process: BaseProcess) -> bool:
    """Returns whether a signal or a debugger has stopped a process, where the system shows it."""
    try:
        with open(f"/proc/{process.pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False


def stop_child(process: BaseProcess, connection: Connection, timeout_secs: float = 5.0) -> None:
    """Closes the connection, waits, and kills the process after the time-out."""
    stop_children([(process, connection)], timeout_secs)


def stop_children(children: Sequence[tuple[BaseProcess, Connection]], timeout_secs: float) -> None:
    """Closes the connections, waits for all children together, and kills those that are left after the time-out.

    Those that are stopped, as by SIGSTOP, are killed at once: they can't end.
    """
    deadline = time.monotonic() + timeout_secs
    for process, connection in children:
        connection.close()
        if is_stopped(process):
            process.kill()
    for process, _ in children:
        process.join(max(0.0, deadline - time.monotonic()))
    left = [process for process, _ in children if process.is_alive()]
    for process in left:
        process.kill()
    for process in left:
        process.join(KILL_SECS)


@contextmanager
def _sigmask() -> Iterator[None]:
    """Blocks STOP_SIGNALS in this thread; processes started meanwhile inherit that, and never get one.

    The thread gets its pending signals afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        resource_tracker.ensure_running()  # multiprocessing's helper, too; starting it unblocks some of them
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ[name] for name in variables.keys() & os.environ.keys()}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


def heeded(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Returns the signals that a program is to handle: SIGHUP stays ignored where it is, as by nohup."""
    return [x for x in numbers if x != signal.SIGHUP or signal.getsignal(x) != signal.SIG_IGN]


class StopRequest:
    """Set, once installed, by a stop signal: SIGINT, SIGTERM, SIGUSR1, which Slurm sends before a job's end, or SIGHUP.

    The last comes when a terminal is closed or a connection lost; see `heeded`.

    If it is not read within HEARD_SECS, a line says what the program `awaits`. A second SIGINT raises
    KeyboardInterrupt. It kills a process that compiles after HEARD_SECS, and one that tidies up after LEAVE_SECS more.
    With `usr1_saves`, SIGUSR1 sets `save_due` instead, which its reader resets.

    A program that can't go on is asked to stop, too: where it asks, the error is raised. One that saves in order reads
    `reason` instead.
    """

    def __init__(self) -> None:
        self.reason = ""  # the signal's name, or words
        self._error: Exception | None = None
        self._awaited = "the step in progress is done"
        self.interrupted_twice = False
        self._num_interrupts = 0
        self.usr1_saves = False
        self.save_due = False
        self._terminal: list | None = None  # settings of the one that is standard input, before the program set it

    def __bool__(self) -> bool:
        if self._error is not None:
            raise self._error
        if self.reason:
            self.awaits("")
        return bool(self.reason)

    def awaits(self, what: str) -> None:
        """Names what is to be done before the program reads a stop request; empty: it has, or says so by itself."""
        self._awaited = what

    def fail(self, error: Exception, reason: str) -> None:
        """Has the program end by an error, of which `reason` is the short form. Any thread calls it."""
        self._error, self.reason = error, self.reason or reason

    @contextmanager
    def installed(self, until_exit: bool = False) -> Iterator["StopRequest"]:
        """Handles the signals. With `until_exit` all but SIGINT are ignored afterwards: nothing is left to stop."""
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        with suppress(termios.error):
            self._terminal = termios.tcgetattr(0)
        ended = threading.Event()
        threading.Thread(target=self._watch, args=(read_end, ended), name="signals", daemon=True).start()
        wakeup_before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        previous = {number: signal.signal(number, self._handle) for number in heeded(STOP_SIGNALS)}
        try:
            try:
                yield self
            except Exception:  # as which a callback's may come back
                if not self.interrupted_twice:
                    raise
            if self.interrupted_twice:
                raise KeyboardInterrupt(LEFT_AT_ONCE) from None
        finally:
            for number, handler in previous.items():
                signal.signal(number, signal.SIG_IGN if until_exit and number != signal.SIGINT else handler)
            signal.set_wakeup_fd(wakeup_before)
            ended.set()
            os.close(write_end)

    def _handle(self, number: int, frame: object) -> None:
        if number == signal.SIGUSR1 and self.usr1_saves:
            self.save_due = True
            return
        self.reason = signal.Signals(number).name
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, self._interrupt)
            if self._num_interrupts > 1:  # both came before this ran
                self._interrupt(number, None)

    def _interrupt(self, number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # cleaning up is not interrupted again
        self.interrupted_twice = True  # an exception inside a callback is printed and lost: raised again at the end
        raise KeyboardInterrupt(LEFT_AT_ONCE)

    def _watch(self, read_end: int, ended: threading.Event) -> None:
        """Has a line answer the first signal; kills the process unless it has `ended` soon after a second SIGINT.

        Python runs handlers between instructions of the main thread, and merges several signals of a kind: a thread
        that compiles gets to them when it is done. The numbers, which this reads, arrive at once.
        """
        is_answered = False
        with open(read_end, "rb", buffering=0) as numbers:
            while self._num_interrupts < 2 and (number := numbers.read(1)):
                self._num_interrupts += number[0] == signal.SIGINT
                if not is_answered and (number[0] != signal.SIGUSR1 or not self.usr1_saves):
                    is_answered = True
                    threading.Thread(target=self._answer, args=(number[0], ended), daemon=True).start()
            if not ended.wait(HEARD_SECS) and not (self.interrupted_twice and ended.wait(LEAVE_SECS)):
                signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))  # would stop this, in a shell's background
                with suppress(OSError, termios.error):
                    if self._terminal and os.tcgetpgrp(0) == os.getpgrp():
                        termios.tcsetattr(0, termios.TCSANOW, self._terminal)
                with suppress(OSError):  # past sys.stderr, whose lock may be held, and without waiting for a terminal
                    if select.select([], [2], [], 0)[1]:
                        os.write(2, f"{LEFT_AT_ONCE}\n".encode())
                os._exit(130)

    def _answer(self, number: int, ended: threading.Event) -> None:
        """Reports what the program waits for, in a thread that may itself wait for a terminal."""
        if not ended.wait(HEARD_SECS) and self._awaited and self._num_interrupts < 2:
            again = "; Ctrl-C again ends at once" if number == signal.SIGINT else ""
            report(f"{signal.Signals(number).name}: ends when {self._awaited}{again}")


@functools.cache
def code_commit() -> str:
    """Returns the git commit of this program's checkout, with `-dirty` after changes; empty: it is installed."""
    folder = os.path.dirname(__file__)

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", "-C", folder, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", os.path.basename(__file__))  # else the repository is another program's
        return git("describe", "--always", "--dirty")
    except (OSError, subprocess.SubprocessError):
        return ""


class BackgroundThread(threading.Thread):
    """A thread that keeps its exception, for `check` to raise in another thread."""

    def __init__(self, name: str, body: Callable[[], None]):
        super().__init__(name=name, daemon=True)
        self._body = body
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._body()
        except BaseException as error:
            self._error = error

    def check(self) -> None:
        """Raises the exception that ended the thread, if any."""
        if self._error is not None:
            raise self._error


class WaitClock:
    """The fraction of time that a part spends waiting; `fraction` reads and resets it."""

    def __init__(self) -> None:
        self._waited_secs = 0.0
        self._since = time.perf_counter()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._waited_secs += time.perf_counter() - start

    def fraction(self) -> float:
        """Returns waiting time divided by all time since the last call, in [0, 1]."""
        now = time.perf_counter()
        elapsed, waited = now - self._since, self._waited_secs
        self._since, self._waited_secs = now, 0.0
        return min(1.0, waited / elapsed) if elapsed > 0 else 0.0


class Every:
    """A timer. A call returns whether `secs` have passed since it last returned True; never with 0 secs."""

    def __init__(self, secs: float):
        self._secs = secs
        self._last = time.monotonic()

    def __call__(self) -> bool:
        due = self._secs > 0 and time.monotonic() - self._last >= self._secs
        if due:
            self._last = time.monotonic()
        return due
