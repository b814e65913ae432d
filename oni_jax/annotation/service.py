"""The annotation service: a child process that annotates items, and its handle in the learner's process."""

import asyncio
import atexit
import collections
import contextlib
import functools
import itertools
import pickle
import queue
import select
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from multiprocessing.connection import Connection
from typing import Any

from oni_jax.annotation.answers import TOKEN_COUNTS
from oni_jax.annotation.client import Client, NoServer, make_client
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.labeller import TOO_LONG, Labeller, Part, Store, is_too_long
from oni_jax.annotation.questions import Question as Question
from oni_jax.annotation.questions import asked_together
from oni_jax.annotation.watched_store import WatchedStore
from oni_jax.host.children import BEAT_SECS, Child, ChildLost
from oni_jax.host.reporting import report
from oni_jax.host.restarts import Restarts
from oni_jax.host.runtime import ChildError, Every, is_stopped, start_child
from oni_jax.types import Annotation, Answer, Item, Query

STATS_SECS = 0.25
GRACE_SECS = 5.0  # grace for answers in flight when the service is closed
CLOSE_SILENT_SECS = 3.0  # after which a process that is to end counts as stopped
MAX_SEND_BYTES = 1 << 14  # fits into any writable pipe, so that sending never blocks
MAX_RECEIVED = 100  # at once
LOST = "processes that answer"  # name in errors
# Statistics that a new process gives for the old one, too. All others are counts.
_OF_NOW = {
    "state",
    "problem",
    "labels_held",
    "servers",
    "servers_answering",
    "filtered_fraction",
    "backlog",
    "in_flight",
    "latency_secs_mean",
}
NEWEST_OF_FULL = 32  # queries that a full backlog has room for
_INITIAL_STATS = dict.fromkeys(
    (
        "labels_held",
        "labels_asked",
        "answers_unreadable",
        "requests",
        "requests_failed",
        "dropped",
        "put_aside",
        "filtered",
    )
    + ("filtered", "filtered_fraction", "restarts", "servers", "servers_answering")
    + ("labels_unanswered", "backlog", "in_flight", "latency_secs_mean", *TOKEN_COUNTS),
    0.0,
)


class AnnotationService:
    """Annotates items in a child process. No call blocks, except `close`.

    Args:
        questions: all those of a run; `Query.question` is an index into them.
        store: a picklable label store; the answers in it come first and are not asked for again.
        niceness: niceness of the child process.
        restarts: counts those of the child process, which is started again when it is killed or stopped. Without it
            `poll` raises then.

    Raises:
        UserError: bad address, key or chat template.
    """

    def __init__(
        self, questions: Sequence[Question], store: Store, niceness: int = 0, restarts: Restarts | None = None
    ):
        for question in questions:
            make_client(question.config, question.prompt)  # raises here what would end the child process
        self.labels_of = ", ".join(f"{' + '.join(x.models)} {x.prompt.digest}" for x in questions)
        self._max_outgoing = max(x.config.llm_max_backlog for x in questions)
        self._outgoing: collections.deque[Query] = collections.deque()
        # Hashes of pending, answered and put-aside queries: at 1e6 queries, two collide once in 4e7 runs.
        self._known: set[int] = set()
        self._pending: dict[int, Query] = {}  # hash -> query
        self._held_at_start: set[int] | None = set()  # None: all of the stored answers have arrived
        self._num_dropped = 0
        self._ready: list[Annotation] = []
        self._answers: tuple[Answer, ...] = ()
        state = "starting" if any(question.config.llm_server_addr for question in questions) else ""
        self._stats: dict[str, float | str] = {**_INITIAL_STATS, "state": state, "problem": ""}
        self._counted: collections.Counter[str] = collections.Counter()  # counts of earlier processes
        self._restarts, self._say = restarts, functools.cache(report)
        self._closed = False
        self._start_process = functools.partial(
            start_child, "annotation", run_service, questions, store, niceness=niceness
        )
        self._start()
        atexit.register(self.close)  # before multiprocessing's hook, which would block for ever

    def submit(self, queries: Sequence[Query]) -> None:
        """Adds queries, the newest last, those about one item together; skips those that are known already."""
        together: dict[Item, list[Query]] = {}
        for query in queries:
            together.setdefault(query.item, []).append(query)
        for query in itertools.chain.from_iterable(together.values()):
            key = hash(query)
            if key not in self._known:
                self._known.add(key)
                if is_too_long(query.item):  # the limit holds for a pipe, too
                    self._counted["put_aside"] += 1
                    self._ready.append(Annotation(query.item, None, query.question))
                    self._say(TOO_LONG)
                    continue
                self._pending[key] = query
                self._outgoing.append(query)
        while len(self._outgoing) > self._max_outgoing:
            self._report_dropped([self._outgoing.popleft()])
            self._num_dropped += 1
        self._send()

    def room(self) -> int:
        """Returns how many queries are worth a `submit`: a full backlog drops all but the newest."""
        return max(NEWEST_OF_FULL, self._max_outgoing - int(self.stats()["backlog"]))

    def poll(self) -> list[Annotation]:
        """Returns the annotations since the last call; the first are those that the label store held at the start.

        One without an answer is of an item that was put aside or dropped. It may be submitted again if it was dropped,
        or put aside while no request succeeded.

        Raises:
            ChildError: the child process has failed, with its traceback, or was lost too often; or the judge was.
        """
        if self._restarts:
            self._restarts.check()
        self._receive()
        self._send()
        ready, self._ready = self._ready, []
        return ready

    def stats(self) -> dict[str, float | str]:
        """Counts since the start, and `state`; at most STATS_SECS old at the last `poll`."""
        stats = dict(self._stats)
        stats["dropped"] = float(stats["dropped"]) + self._num_dropped
        stats["backlog"] = float(stats["backlog"]) + len(self._outgoing)
        for name, count in self._counted.items():
            stats[name] = float(stats.get(name, 0.0)) + count
        if self._counted["filtered"]:
            stats["filtered_fraction"] = float(stats["filtered"]) / max(1.0, float(stats["labels_asked"]))
        stats["restarts"] = float(self._restarts.num_lost if self._restarts else 0)
        return stats

    def answers(self) -> tuple[Answer, ...]:
        """The newest answers, the newest last; as old as `stats`."""
        return self._answers

    def close(self, grace_secs: float = GRACE_SECS) -> None:
        """Waits up to `grace_secs` for answers in flight, and ends the process. `poll` then returns the rest."""
        if self._closed:
            return
        is_silent = self._finish(grace_secs)
        self._closed = True
        atexit.unregister(self.close)
        self._child.stop(0.0 if is_silent else 1.0)

    def _finish(self, grace_secs: float) -> bool:
        """Has the process finish. Returns whether it fell silent."""
        deadline, heard_at = time.monotonic() + grace_secs + 2.0, time.monotonic()
        with contextlib.suppress(ChildError, ChildLost, OSError):
            if self._writable.poll(0):
                self._connection.send(grace_secs)
            while (now := time.monotonic()) < deadline:
                if now - heard_at > CLOSE_SILENT_SECS or is_stopped(self._process):
                    return True
                if messages := self._child.wait(STATS_SECS):
                    heard_at = now
                    self._take(messages)
        return False

    def _start(self) -> None:
        process, connection = self._start_process()
        self._process, self._connection, self._child = process, connection, Child(process, connection)
        self._writable = select.poll()
        self._writable.register(connection.fileno(), select.POLLOUT)

    def _start_again(self, reason: str) -> None:
        """Replaces a process that was lost: the new one is asked what that one had not answered."""
        text = f"the annotation process (pid {self._process.pid}) {reason}"
        if not self._restarts:
            raise ChildError(f"{text} (exit code {self._process.exitcode})")
        of_allowed = self._restarts.count(LOST, text)
        report(f"warning: {text}: started again ({of_allowed})")
        self._child.stop(0.0)
        self._counted.update({name: x for name, x in self._stats.items() if name not in _OF_NOW})
        self._stats = {**_INITIAL_STATS, "state": "starting" if self._stats["state"] else "", "problem": ""}
        self._outgoing = collections.deque(self._pending.values())
        self._held_at_start = set()
        self._start()

    def _send(self) -> None:
        """Sends pending queries without blocking, once all of the stored answers have arrived."""
        while self._outgoing and self._held_at_start is None and not self._closed and self._writable.poll(0):
            queries, num_bytes = [], 0
            while self._outgoing and num_bytes < MAX_SEND_BYTES:
                query = self._outgoing.popleft()
                queries.append(tuple(query))
                num_bytes += sum(map(len, query.item)) + 16
            try:
                self._connection.send(queries)
            except OSError:
                return  # the process has died; `poll` raises

    def _receive(self) -> None:
        for _ in range(MAX_RECEIVED):
            if self._closed:
                return
            try:
                messages = self._child.receive()
            except ChildLost as reason:
                self._start_again(str(reason))
                return
            if not messages:
                return
            self._take(messages)

    def _take(self, messages: Sequence[bytes]) -> None:
        for raw in messages:
            if not raw.startswith(b"\x80"):  # not a pickle: the error that ended the process
                raise ChildError(raw.decode("utf-8", "replace"))
            self._handle(*pickle.loads(raw))

    def _handle(self, kind: str, content) -> None:
        if kind == "answered":
            keys = [hash(Query(item, question)) for item, _, question in content]
            # A restarted process reports again what is stored.
            self._ready += [x for x, key in zip(content, keys) if key in self._pending or key not in self._known]
            self._known.update(keys)
            for key in keys:
                self._pending.pop(key, None)
            if self._held_at_start is not None:
                self._held_at_start.update(keys)
        elif kind == "dropped":
            self._report_dropped([query for query in content if hash(query) in self._pending])
        elif kind == "readmitted":
            self._known.difference_update(map(hash, content))
        elif kind == "answers":
            self._answers = content
        elif kind == "line":
            report(content)
        else:
            self._stats = content
            if self._held_at_start is not None:
                self._outgoing = collections.deque(q for q in self._outgoing if hash(q) not in self._held_at_start)
                self._held_at_start = None
                self._child.is_ready = True

    def _report_dropped(self, queries: Sequence[Query]) -> None:
        """Reports dropped queries as unanswered; they may be submitted again."""
        self._known.difference_update(map(hash, queries))
        for query in queries:
            self._pending.pop(hash(query), None)
        self._ready += [Annotation(item, None, question) for item, question in queries]


def run_service(connection: Connection, questions: Sequence[Question], store: Store) -> None:
    """Runs in the child process until the other end of `connection` closes or sends a grace period."""
    asyncio.run(_serve(connection, questions, store))


async def _serve(connection: Connection, questions: Sequence[Question], store: Store) -> None:
    outbox: queue.SimpleQueue[tuple[str, object] | None] = queue.SimpleQueue()
    writer = threading.Thread(target=_write, args=(connection, outbox), daemon=True)
    writer.start()
    watched = WatchedStore(store, lambda line: outbox.put(("line", line))) if isinstance(store, LabelStore) else None
    async with contextlib.AsyncExitStack() as stack:
        labellers: dict[tuple[int, ...], Labeller] = {}  # indices of the questions that it asks -> labeller
        for indices in asked_together(questions):
            question = questions[indices[0]]
            client = await stack.enter_async_context(_make_client(question, outbox))
            asked = {index: questions[index] for index in indices}
            labellers[indices] = _make_labeller(asked, client, watched or store, outbox)
            labellers[indices].emit_stored()
        stop: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        threading.Thread(target=_read, args=(connection, labellers, stop), daemon=True).start()
        running = [asyncio.ensure_future(labeller.run()) for labeller in labellers.values()]
        sent: dict[str, object] = {}
        beat_due = Every(BEAT_SECS)
        while not stop.done():
            if watched:
                with contextlib.suppress(OSError):  # it is tried again
                    watched.look()
            stats = merge_stats([labeller.stats() for labeller in labellers.values()])
            news: dict[str, object] = {
                "stats": stats,
                "answers": _newest([labeller.answers() for labeller in labellers.values()]),
            }
            for kind, content in news.items():
                if content != sent.get(kind) or (kind == "stats" and beat_due()):
                    outbox.put((kind, content))
            sent = news
            done, _ = await asyncio.wait((*running, stop), timeout=STATS_SECS, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises
        for task in running:
            task.cancel()
        finishing = asyncio.gather(*(labeller.finish(stop.result()) for labeller in labellers.values()))
        while not (await asyncio.wait([finishing], timeout=STATS_SECS))[0]:
            outbox.put(("stats", merge_stats([labeller.stats() for labeller in labellers.values()])))
        finishing.result()  # raises
        outbox.put(("stats", merge_stats([labeller.stats() for labeller in labellers.values()])))
        outbox.put(None)
        writer.join(GRACE_SECS)


def _make_client(question: Question, outbox: "queue.SimpleQueue[tuple[str, object] | None]") -> Client | NoServer:
    def say(line: str) -> None:
        outbox.put(("line", line))

    return make_client(question.config, question.joint or question.prompt, say, question.needs_probability)


def _make_labeller(
    questions: Mapping[int, Question],
    client: Client | NoServer,
    store: Store,
    outbox: "queue.SimpleQueue[tuple[str, object] | None]",
) -> Labeller:
    indices, first = [*questions], next(iter(questions.values()))
    parts = [Part(question.prompt.digest, question.recorded) for question in questions.values()]

    def emit(annotations: list[Annotation]) -> None:
        outbox.put(("answered", [found._replace(question=indices[found.question]) for found in annotations]))

    def forget(items: list[Item]) -> None:
        outbox.put(("dropped", [Query(item, index) for item in items for index in indices]))

    def readmit(items: list[Item]) -> None:
        outbox.put(("readmitted", [Query(item, index) for item in items for index in indices]))

    prompt = first.joint or first.prompt
    return Labeller(first.config, client, store, prompt, emit, forget, readmit=readmit, parts=parts)


def merge_stats(stats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums the questions' counts and averages their latencies; takes the first state but ok, and the first problem."""
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for counts in stats for name in counts):
        values = [counts[name] for counts in stats if name in counts]
        if name in ("state", "problem"):
            merged[name] = next((value for value in values if value not in ("ok", "")), max(values))
        else:
            merged[name] = sum(values) / len(values) if name == "latency_secs_mean" else sum(values)
    if "filtered" in merged:
        merged["filtered_fraction"] = merged["filtered"] / max(1, merged["labels_asked"])
    return merged


def _newest(answers: Sequence[tuple[Answer, ...]]) -> tuple[Answer, ...]:
    """Interleaves the questions' answers."""
    return tuple(answer for row in zip_longest(*answers) for answer in row if answer is not None)


def _read(connection: Connection, labellers: Mapping[tuple[int, ...], Labeller], stop: "asyncio.Future[float]") -> None:
    """Forwards queries as they arrive, so that the learner's process never blocks on this one."""
    loop = stop.get_loop()
    with contextlib.suppress(RuntimeError):  # the loop has ended
        while True:
            try:
                received: Any = connection.recv()
            except (EOFError, OSError):
                received = 0.0
            if isinstance(received, float):
                loop.call_soon_threadsafe(lambda grace_secs=received: stop.done() or stop.set_result(grace_secs))
                return
            for indices, labeller in labellers.items():
                if items := [*dict.fromkeys(item for item, question in received if question in indices)]:
                    loop.call_soon_threadsafe(labeller.submit, items)


def _write(connection: Connection, outbox: "queue.SimpleQueue[tuple[str, object] | None]") -> None:
    with contextlib.suppress(OSError):
        while (outgoing := outbox.get()) is not None:
            connection.send(outgoing)
