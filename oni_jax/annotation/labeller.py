"""Annotates items: asks, handles failures, commits answers to the label store, then emits them.

The rule for each kind of failure is in `failures`.
"""

import asyncio
import dataclasses
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence

from oni_jax.annotation.answers import TOKEN_COUNTS, Reply
from oni_jax.annotation.backlog import Backlog
from oni_jax.annotation.client import Client, NoServer
from oni_jax.annotation.failures import CONTEXT_FULL, FILTERED, STATES, WAITING, RequestError
from oni_jax.annotation.pacing import MAX_BACKOFF_SECS, Pacer, backoff_secs
from oni_jax.annotation.prompts import Prompt
from oni_jax.annotation.recorded import NOTHING, Recorded
from oni_jax.annotation.stored import Store, checked, stored_answers
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from oni_jax.types import Annotation, Answer, Item

MAX_ITEM_BYTES = 1 << 16  # longer items are put aside
EMITTED_AT_ONCE = 1000
MAX_FAILURE_NAMES = 64
NUM_LATENCIES = 100  # of the latest requests, whose mean is reported
NUM_ANSWERS, MAX_ANSWER_CHARS = 10, 2000  # kept for display
UNREADABLE = "unreadable"

ENOUGH = "no more labels, by --llm_max_labels"
FAILURES_TO_WAITING = 3  # in a row; before that, it may be the prompts


class Labeller:
    """Annotates items in one event loop: `run` for ever, `submit` meanwhile, `finish` in the end.

    Args:
        prompt: the client's.
        emit: receives annotations that are in the store, and, without an answer, those of items put aside.
        forget: receives dropped items; they may be submitted again.
        unreadable: receives items put aside after two unreadable answers, before `emit` does.
        readmit: receives items put aside while every request failed; they may be submitted again.
        recorded: answers that are not asked for. Without a server, items that have none are put aside.
    """

    def __init__(
        self,
        config: AnnotationConfig,
        client: Client | NoServer,
        store: Store,
        prompt: Prompt,
        emit: Callable[[list[Annotation]], None],
        forget: Callable[[list[Item]], None],
        unreadable: Callable[[Item], None] = lambda item: None,
        readmit: Callable[[list[Item]], None] = lambda items: None,
        recorded: Recorded = NOTHING,
    ):
        self._config, self._client, self._store, self._recorded = config, client, store, recorded
        self._kind, self._key = prompt.kind, (config.llm_model, prompt.digest)
        self._emit, self._forget, self._report_unreadable, self._readmit = emit, forget, unreadable, readmit
        self._backlog = Backlog(config.llm_max_backlog)
        takes_lists, limits = config.llm_api == "completions", (config.llm_max_in_flight, config.llm_max_per_sec)
        self._pacer = Pacer(config.llm_batch_size, takes_lists, *limits)
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_sent = 0
        self._num_tries: dict[Item, int] = {}  # failures of items asked about alone
        self._refused: dict[Item, int] = {}  # requests that had succeeded when the server refused the item first
        self._given_up: list[Item] = []  # put aside after failures since a request succeeded last
        self._unreadable: dict[Item, str] = {}  # first answers that could not be read
        self._answered: list[tuple[Annotation, str]] = []  # not yet committed
        self._commit_timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._fatal: BaseException | None = None
        self._problem: RequestError | None = None
        self._store_problem = ""
        self._counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._latencies_secs: deque[float] = deque(maxlen=NUM_LATENCIES)
        self._answers: deque[Answer] = deque(maxlen=NUM_ANSWERS)

    def emit_stored(self) -> None:
        """Emits every recorded and every stored answer; stores the former. Raises UserError: one is not an answer."""
        recorded, (asked, digest) = self._recorded, self._key
        if recorded.answers:
            stored = {annotation.item for annotation in self._store.all(recorded.model, digest)}
            new = [Annotation(item, answer) for item, answer in recorded.answers.items() if item not in stored]
            if new:
                self._store.put_many(recorded.model, digest, [(annotation, "") for annotation in new])
        models = [recorded.model] * bool(recorded.answers) + [asked] * (not isinstance(self._client, NoServer))
        held = stored_answers(self._store, self._kind, models, digest)
        for start in range(0, len(held), EMITTED_AT_ONCE):
            self._deliver(held[start : start + EMITTED_AT_ONCE])

    def submit(self, items: Sequence[Item]) -> None:
        """Adds items, the newest last; skips those already pending or in flight; puts aside those that are too long or
        hold a zero byte, which no store keeps. Recorded answers are given at once; without a server to ask, other items
        stay unanswered."""
        known = [Annotation(x, answer) for x in items if (answer := self._recorded.answers.get(x)) is not None]
        if known:
            self._answered += [(annotation, "") for annotation in known]
            self._commit()
        askable = []
        for item in items:
            if item in self._recorded.answers:
                continue
            if isinstance(self._client, NoServer):
                self._counts["labels_unanswered"] += 1
                self._emit([Annotation(item, None)])
            elif sum(map(len, item)) <= MAX_ITEM_BYTES and not any(b"\0" in caption for caption in item):
                askable.append(item)
            else:
                self._put_aside(item)
        self._drop(self._backlog.add(askable))
        self._changed.set()

    async def run(self) -> None:
        """Asks about submitted items, for ever. Raises the error of a damaged label store, or of a bug."""
        while True:
            if self._fatal:
                raise self._fatal
            may_ask = self._backlog and self._room() and not self._store_problem
            wait_secs = self._pacer.wait_secs(len(self._tasks)) if may_ask else None
            if wait_secs == 0.0:
                self._ask_next()
                continue
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), wait_secs)
            except TimeoutError:
                pass

    async def finish(self, grace_secs: float) -> None:
        """Waits up to `grace_secs` for answers in flight, and commits them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_secs)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._commit()
        if self._answered:
            print(f"{len(self._answered):,} labels are lost: {self._store_problem}", file=sys.stderr, flush=True)

    def stats(self) -> dict[str, float | str]:
        """Counts since the start; `state`: ok, retrying, ..., "" without a server; `problem`: its cause, in a line."""
        counts, servers = self._counts, self._client.servers
        names = ("labels_held", "labels_asked", "answers_unreadable", "requests", "requests_failed", "dropped")
        return {
            "state": self._state(),
            "problem": self._store_problem or (str(self._problem) if self._problem else servers.problem),
            **{name: counts[name] for name in (*names, "put_aside", "labels_unanswered", "filtered")},
            "servers": len(servers),
            "servers_answering": servers.num_answering,
            "backlog": len(self._backlog),
            "in_flight": self._backlog.num_in_flight,
            "latency_secs_mean": sum(self._latencies_secs) / max(1, len(self._latencies_secs)),
            **{name: self._client.tokens[name] for name in TOKEN_COUNTS},
            **{f"failures/{name}": count for name, count in self._failures.items()},
            **{f"events/{name}": count for name, count in self._client.events.items()},
        }

    def answers(self) -> tuple[Answer, ...]:
        """The newest answers, unreadable ones included; the newest last."""
        return tuple(self._answers)

    def _state(self) -> str:
        if self._store_problem:
            return "label store can't be written"
        if isinstance(self._client, NoServer):
            return ""
        if self._problem is None:
            servers = self._client.servers
            if servers.num_answering < len(servers) > 1:
                return f"{servers.num_answering} of {len(servers)} servers answer"
            return "ok" if self._room() or self._backlog.num_in_flight else ENOUGH
        if self._problem.server_at_fault or self._pacer.num_failures >= FAILURES_TO_WAITING:
            return STATES.get(self._problem.name, WAITING)
        return "retrying"

    def _ask_next(self) -> None:
        items = self._backlog.take(min(self._pacer.num_items(), self._room()))
        held = self._held(items)
        if held:
            self._deliver(held)
            items = [item for item in items if item not in {annotation.item for annotation in held}]
        if items:
            self._pacer.sent(len(items))
            task = asyncio.get_running_loop().create_task(self._ask(items))
            self._tasks.add(task)
            task.add_done_callback(self._task_done)

    def _room(self) -> int:
        """Returns how many more answers may be asked for, by `llm_max_labels`."""
        known = self._counts["labels_held"] + len(self._answered) + self._backlog.num_in_flight
        return max(0, self._config.llm_max_labels - known) if self._config.llm_max_labels else sys.maxsize

    def _held(self, items: Sequence[Item]) -> list[Annotation]:
        """Answers of these items that another run has stored meanwhile."""
        try:
            return checked(self._kind, self._store.get_many(*self._key, items))
        except OSError:
            self._failures["label_store"] += 1
            return []

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():
            self._fatal = task.exception()
        self._changed.set()

    async def _ask(self, items: list[Item]) -> None:
        client, start = self._client, asyncio.get_running_loop().time()
        assert not isinstance(client, NoServer)
        self._num_sent += 1
        num_sent, alone = self._num_sent, len(self._tasks) == 1
        try:
            replies = await client.ask(items, self._unreadable)
        except RequestError as error:
            self._failed(items, self._without_neighbours(error, alone and num_sent == self._num_sent))
        except UserError:  # no answer of this server is of use
            raise
        except Exception as error:  # a bug must not end the service either
            self._failed(items, RequestError(f"unexpected_{type(error).__name__}", client.line(str(error))))
        else:
            self._latencies_secs.append(asyncio.get_running_loop().time() - start)
            self._succeeded(items, replies)

    def _succeeded(self, items: list[Item], replies: list[Reply]) -> None:
        self._pacer.succeeded(items)
        self._problem = None
        self._counts["requests"] += 1
        self._counts["labels_asked"] += len(items)
        if len(self._given_up) > 1:  # the server was at fault, and not each of them
            self._readmit(self._given_up)
        self._given_up = []
        for item, reply in list(zip(items, replies))[-NUM_ANSWERS:]:
            said = UNREADABLE if reply.answer is None else self._kind.describe(reply.answer)
            self._answers.append(Answer(item, said, self._shown(reply.text)))
        for item, reply in zip(items, replies):
            self._forget_failures(item)
            if reply.answer is not None:
                self._unreadable.pop(item, None)
                self._answered.append((Annotation(item, reply.answer), reply.text))
        for item, reply in zip(items, replies):
            if reply.filtered:
                self._failures[FILTERED] += 1
                self._filter(item)
        unreadable = {x: reply for x, reply in zip(items, replies) if reply.answer is None and not reply.filtered}
        if unreadable:
            self._retry_unreadable(unreadable)
        if len(self._answered) >= self._config.llm_batch_size:
            self._commit()
        elif self._answered and self._commit_timer is None:
            self._commit_timer = asyncio.get_running_loop().call_later(self._store.commit_delay_secs, self._commit)

    def _shown(self, text: str) -> str:
        """Truncates an answer's text to its beginning and end, for the label is in one of them; redacts the key."""
        text = text if isinstance(self._client, NoServer) else self._client.without_key(text)
        half = MAX_ANSWER_CHARS // 2
        return text if len(text) <= MAX_ANSWER_CHARS else f"{text[:half]} [...] {text[-half:]}"

    def _retry_unreadable(self, replies: dict[Item, Reply]) -> None:
        # ONI: as published an unreadable answer is the label 0; here the item is asked about once more.
        self._counts["answers_unreadable"] += len(replies)
        self._failures.update(reply.failure for reply in replies.values())
        once = {item: reply.text for item, reply in replies.items() if item not in self._unreadable}
        for item in replies:
            if item not in once:
                self._report_unreadable(item)
                self._put_aside(item)
        if once:
            self._unreadable.update(once)
            self._backlog.retry(list(once))

    def _without_neighbours(self, error: RequestError, alone: bool) -> RequestError:
        """Returns whose fault a full context is: of parallel requests together, or of one that was alone."""
        if error.name != CONTEXT_FULL:
            return error
        if alone:
            return RequestError(f"http_{error.status}", error.detail, error.status)
        return dataclasses.replace(error, server_at_fault=True)

    def _failed(self, items: list[Item], error: RequestError) -> None:
        if self._is_of_the_prompts(items, error):
            error = RequestError(error.name, error.detail, error.status)
        if error.name == FILTERED:
            self._pacer.filtered(items)
            self._problem = None
        else:
            self._pacer.failed(items, error)
            self._problem = error
        self._counts["requests"] += 1
        self._counts["requests_failed"] += 1
        name = error.name if error.name in self._failures or len(self._failures) < MAX_FAILURE_NAMES else "other"
        self._failures[name] += 1
        middle = len(items) // 2
        if error.server_at_fault:
            self._drop(self._backlog.requeue(items))
        elif middle:  # bisects to the one prompt at fault, so that the others get their labels
            self._backlog.retry(items[:middle])
            self._backlog.retry(items[middle:])
        elif error.name == FILTERED:
            self._counts["labels_asked"] += 1
            self._filter(items[0])
        else:
            self._back_off(items[0])

    def _filter(self, item: Item) -> None:
        self._counts["filtered"] += 1
        self._put_aside(item)

    def _is_of_the_prompts(self, items: Sequence[Item], error: RequestError) -> bool:
        """Returns whether others have succeeded since the server refused one of these items first.

        Some answer 403 to a prompt that their moderation flags.
        """
        if not error.server_at_fault or not error.status or error.is_passing or error.name == CONTEXT_FULL:
            return False
        num_succeeded = self._counts["requests"] - self._counts["requests_failed"]
        return min(self._refused.setdefault(item, num_succeeded) for item in items) < num_succeeded

    def _back_off(self, item: Item) -> None:
        num_tries = self._num_tries[item] = self._num_tries.get(item, 0) + 1
        if num_tries > self._config.llm_max_retries:
            self._given_up.append(item)
            self._put_aside(item)
            return
        self._backlog.start_backoff()
        asyncio.get_running_loop().call_later(backoff_secs(num_tries - 1), self._end_backoff, item)

    def _end_backoff(self, item: Item) -> None:
        self._backlog.end_backoff(item)
        self._changed.set()

    def _put_aside(self, item: Item) -> None:
        """Gives up on an item: it gets no label in this run."""
        self._counts["put_aside"] += 1
        self._forget_failures(item)
        self._unreadable.pop(item, None)
        self._backlog.finish([item])
        self._emit([Annotation(item, None)])

    def _drop(self, items: list[Item]) -> None:
        if items:
            self._counts["dropped"] += len(items)
            for item in items:
                self._forget_failures(item)
                self._unreadable.pop(item, None)
            self._forget(items)

    def _forget_failures(self, item: Item) -> None:
        self._num_tries.pop(item, None)
        self._refused.pop(item, None)

    def _commit(self) -> None:
        """Commits the answers, and emits them. While the store can't be written, no requests are made."""
        if self._commit_timer:
            self._commit_timer.cancel()
            self._commit_timer = None
        if not self._answered:
            return
        try:
            self._store.put_many(*self._key, self._answered)
            # Another run's answer that came first is the one that is kept.
            held = {kept.item: kept for kept in self._held([annotation.item for annotation, _ in self._answered])}
        except OSError as error:
            self._failures["label_store"] += 1
            self._store_problem = str(error)
            self._commit_timer = asyncio.get_running_loop().call_later(MAX_BACKOFF_SECS, self._commit)
            return
        except Exception as error:
            self._fatal = error
            self._changed.set()
            return
        self._store_problem = ""
        annotations = [held.get(annotation.item, annotation) for annotation, _ in self._answered]
        self._answered = []
        self._deliver(annotations)
        self._changed.set()

    def _deliver(self, annotations: list[Annotation]) -> None:
        self._counts["labels_held"] += len(annotations)
        self._backlog.finish([annotation.item for annotation in annotations])
        self._emit(annotations)
