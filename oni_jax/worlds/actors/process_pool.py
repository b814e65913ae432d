"""Environments stepped in actor processes. A process that dies or hangs is replaced."""

import builtins
import dataclasses
import os
import selectors
import shutil
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from oni_jax.envs.captions import NewTexts
from oni_jax.host.files import ScratchFolder
from oni_jax.host.inbox import Inbox
from oni_jax.host.restarts import Restarts, how_it_ended
from oni_jax.host.runtime import ChildError, start_child, stop_child, stop_children
from oni_jax.worlds.actors.group import MakeEnv
from oni_jax.worlds.actors.pool import Replies
from oni_jax.worlds.actors.ring import TrajectoryRing
from oni_jax.worlds.actors.worker import COMMAND, run_worker, unpack_reply

HANG_SECS = 60.0  # a step takes microseconds, but for the first, which may compile
START_SECS = 600.0  # limit for all environments of a process, which may be slow plugins
RESTARTS_WINDOW_SECS = 600.0
LIMITED_BY = "--max_actor_restarts"
CHECK_SECS = 1.0
CLOSE_SECS = 3.0  # time for all actors together to close their environments


class ActorLost(Exception):
    """An actor process died, failed or hangs; the text says why."""


@dataclasses.dataclass(eq=False)
class Actor:
    name: str
    groups: Sequence[int]
    scratch: str  # folder of its environments' files
    process: BaseProcess
    connection: Connection
    inbox: Inbox
    restarts: int = 0  # processes replaced so far
    num_replies: int = 0  # number of this process's replies

    @property
    def has_stepped(self) -> bool:
        """True once each group was stepped; before, each sends its first observations."""
        return self.num_replies >= 2 * len(self.groups)


def where_raised(reason: str) -> str:
    """Returns the end of an error's traceback, and its type; empty for none, and for a loss."""
    frames = [line.strip() for line in reason.splitlines() if line.startswith('  File "')]
    if not frames:
        return ""
    kind = reason.rstrip().splitlines()[-1].partition(":")[0]
    error = getattr(builtins, kind, Exception)
    is_loss = isinstance(error, type) and issubclass(error, OSError | EOFError)  # loss of a connection, a file
    return "" if is_loss else f"{frames[-1]} {kind}"


class ProcessPool:
    """`num_workers` processes, each with equally many of the ring's groups; or some of them.

    A process that fails, dies or sends no reply for HANG_SECS (START_SECS until its first step) is replaced, with new
    episodes.

    Args:
      make_env: makes a group's environments.
      ring: the groups' ring.
      num_workers: processes.
      max_restarts: replacements within RESTARTS_WINDOW_SECS; one more raises ChildError. So does a process lost before
        its first reply, or by an error that another raised at the same line: the next would be lost too.
      workers: those of the processes that this pool has; all when left out.
      restarts: counts the replacements of all pools of these processes.
    """

    def __init__(
        self,
        make_env: MakeEnv,
        ring: TrajectoryRing,
        num_workers: int,
        max_restarts: int = 0,
        workers: Sequence[int] = (),
        restarts: Restarts | None = None,
    ):
        self._make_env, self._ring, self._may_restart = make_env, ring, max_restarts > 0
        self._restarts = restarts or Restarts(max_restarts, LIMITED_BY)
        per_worker = ring.shape.num_groups // num_workers
        self._groups = {i: range(i * per_worker, (i + 1) * per_worker) for i in workers or range(num_workers)}
        self._actors: list[Actor] = []
        self._actor_of: dict[int, Actor] = {}
        self._dispatched_at: dict[int, float] = {}
        self._checked_at = time.monotonic()
        self._scratch = ScratchFolder()  # folder for the environments' files, also those of a killed actor
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def start(self) -> None:
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        scratches = [os.path.join(self._scratch.path, f"actor-{index}") for index in self._groups]
        for scratch in scratches:  # all at first: the last actor to exit removes their parent folder
            os.mkdir(scratch)
        for (index, groups), scratch in zip(self._groups.items(), scratches, strict=True):
            name = f"actor-{index}"
            try:
                started = self._start_process(name, groups, scratch, restarts=0)
            except OSError as error:
                raise ChildError(f"{name} can't be started: {error}; a smaller --num_workers needs fewer") from None
            actor = Actor(name, groups, scratch, *started)
            self._actors.append(actor)
            self._actor_of.update(dict.fromkeys(groups, actor))
            self._selector.register(actor.inbox, selectors.EVENT_READ, actor)

    def _start_process(
        self, name: str, groups: Sequence[int], scratch: str, restarts: int
    ) -> tuple[BaseProcess, Connection, Inbox]:
        body = (run_worker, self._make_env, self._ring, groups, scratch, restarts)
        process, connection = start_child(name, *body, single_threaded=True, cleans_up=True)
        return process, connection, Inbox(connection)

    def dispatch(self, group: int, slot: int, t: int) -> None:
        self._dispatched_at[group] = time.monotonic()
        try:
            self._actor_of[group].connection.send_bytes(COMMAND.pack(group, slot, t))
        except OSError:
            pass  # it has died: `wait` will report it

    def wait(self, timeout_secs: float) -> Replies:
        done: list[int] = []
        texts: NewTexts = []
        lost: dict[Actor, str] = {}  # actor -> reason
        for key, _ in self._selector.select(timeout_secs):
            if key.data is None:
                os.read(self._wake_read, 4096)
                continue
            try:
                for group, new in self._receive(key.data):
                    done.append(group)
                    texts += new
            except ActorLost as reason:
                lost[key.data] = str(reason)
        for group in done:
            del self._dispatched_at[group]
        now = time.monotonic()
        if now - self._checked_at > CHECK_SECS:
            lost.update(self._hanging(now))
            self._checked_at = now
        if not lost:
            return Replies(done, texts)
        failures = [self._replace(actor, reason) for actor, reason in lost.items()]
        return Replies(done, texts, [group for actor in lost for group in actor.groups], failures)

    def _receive(self, actor: Actor) -> list[tuple[int, NewTexts]]:
        """Returns the replies that have arrived whole: an actor may have been stopped in the middle of one."""
        try:
            replies = actor.inbox.receive()
        except EOFError:
            actor.process.join(1.0)
            raise ActorLost(how_it_ended(actor.process.exitcode)) from None
        for reply in replies:
            if not reply.startswith(b"\0"):  # an error's text
                raise ActorLost(reply.decode(errors="replace"))
        actor.num_replies += len(replies)
        return [unpack_reply(reply) for reply in replies]

    def _hanging(self, now: float) -> dict[Actor, str]:
        if now - self._checked_at > 10 * CHECK_SECS:  # this process was suspended, perhaps the actors too
            self._dispatched_at = dict.fromkeys(self._dispatched_at, now)
        limits = {actor: HANG_SECS if actor.has_stepped else START_SECS for actor in self._actor_of.values()}
        waiting = [(self._actor_of[group], now - since) for group, since in self._dispatched_at.items()]
        silent = [actor for actor, secs in waiting if secs > limits[actor]]
        return {actor: f"has not replied for {limits[actor]:.0f} s" for actor in silent}

    def _replace(self, actor: Actor, reason: str) -> str:
        """Replaces a lost actor's process. Returns a log line; raises ChildError when it should not be replaced."""
        text = f"{actor.name} (pid {actor.process.pid}) {reason}"
        if not self._may_restart or (not actor.num_replies and not actor.restarts):
            raise ChildError(text)
        raised = where_raised(reason)
        if raised and self._restarts.is_repeated(raised, RESTARTS_WINDOW_SECS):
            raise ChildError(f"{text.rstrip()}\nthe same error was raised before: correct the environment")
        of_allowed = self._restarts.count("actors", text, RESTARTS_WINDOW_SECS)
        self._selector.unregister(actor.inbox)
        actor.process.kill()  # sooner than it finds its connection closed, and tidies up
        actor.inbox.close()
        stop_child(actor.process, actor.connection)
        shutil.rmtree(actor.scratch, ignore_errors=True)
        actor.restarts, actor.num_replies = actor.restarts + 1, 0
        try:
            os.makedirs(actor.scratch)
            started = self._start_process(actor.name, actor.groups, actor.scratch, actor.restarts)
        except OSError as error:
            raise ChildError(f"{text}\nit can't be replaced: {error}") from None
        actor.process, actor.connection, actor.inbox = started
        self._selector.register(actor.inbox, selectors.EVENT_READ, actor)
        for group in actor.groups:
            self._dispatched_at.pop(group, None)
        return f"{text.rstrip()}: replaced, with new episodes ({of_allowed})"

    def wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # the pipe is full: a wake-up is pending

    def close(self) -> None:
        for actor in self._actors:
            actor.inbox.close()
        stop_children([(actor.process, actor.connection) for actor in self._actors], CLOSE_SECS)
        self._scratch.close()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
