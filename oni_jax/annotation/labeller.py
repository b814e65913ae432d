"""Annotates items: a queue around an asker, which commits answers to the label store, and then emits them."""

import asyncio
import functools
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oni_jax.annotation.answers import TOKEN_COUNTS
from oni_jax.annotation.asker import FAILURES_TO_WAITING, Asked, Asker, Policy, Stopped, about_items
from oni_jax.annotation.backlog import Backlog
from oni_jax.annotation.client import Client, NoServer
from oni_jax.annotation.failures import FILTERED, KIND_RAISES, STATES, WAITING
from oni_jax.annotation.pacing import MAX_BACKOFF_SECS
from oni_jax.annotation.prompts import Prompt
from oni_jax.annotation.recorded import NOTHING, Recorded
from oni_jax.annotation.stored import Store, checked, stored_answers
from oni_jax.host.reporting import report
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.types import Annotation, Answer, Item

MAX_ITEM_BYTES = 1 << 16  # longer items are put aside
TOO_LONG = (
    f"warning: a caption is too long to ask about, with more than {MAX_ITEM_BYTES:,} bytes: such captions get no "
    "answer, and are counted as put aside"
)
EMITTED_AT_ONCE = 1000
NUM_LATENCIES = 100  # number of latest requests whose mean is reported
NUM_ANSWERS, MAX_ANSWER_CHARS = 10, 2000  # kept for display
UNREADABLE = "unreadable"

ENOUGH = "no more labels, by --llm_max_labels"


class Part(NamedTuple):
    """Answers that are stored under one prompt: all, or those of one goal, where a query asks about several."""

    digest: str
    recorded: Recorded = NOTHING  # answers that are not asked for


class Labeller:
    """Annotates items in one event loop: `run` for ever, `submit` meanwhile, `finish` in the end.

    Args:
        prompt: the client's.
        emit: receives annotations that are in the store, and, without an answer, those of items put aside; the index
            of its part is each one's question.
        forget: receives dropped items; they may be submitted again.
        unreadable: receives items put aside after two unreadable answers, before `emit` does.
        readmit: receives items put aside while every request failed; they may be submitted again.
        recorded: answers that are not asked for. Without a server, items that have none are put aside.
        parts: those of each goal, where the prompt asks about several.
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
        parts: Sequence[Part] = (),
    ):
        self._config, self._client, self._store, self._kind = config, client, store, prompt.kind
        self._parts = parts or [Part(prompt.digest, recorded)]
        self._emit, self._forget, self._report_unreadable, self._readmit = emit, forget, unreadable, readmit
        self._backlog = Backlog(config.llm_max_backlog)
        list_size = config.llm_batch_size if config.llm_api == "completions" else 1
        self._asker = Asker(config, client, about_items(client), list_size)
        self._policy = Policy(config.llm_max_retries, asks_again=True)  # a server at fault: items are requeued
        self._say = functools.cache(report)  # each line once
        self._tasks: set[asyncio.Task[None]] = set()
        self._given_up: list[Item] = []  # put aside after failures since a request succeeded last
        self._answered: list[tuple[Annotation, str]] = []  # not yet committed
        self._commit_timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._fatal: BaseException | None = None
        self._store_problem = ""
        self._counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._latencies_secs: deque[float] = deque(maxlen=NUM_LATENCIES)
        self._answers: deque[Answer] = deque(maxlen=NUM_ANSWERS)

    def emit_stored(self) -> None:
        """Emits every recorded and every stored answer; stores the former. Raises UserError: one is not an answer."""
        for index, (digest, recorded) in enumerate(self._parts):
            if recorded.answers:
                stored = {annotation.item for annotation in self._store.all(recorded.model, digest)}
                new = [Annotation(item, answer) for item, answer in recorded.answers.items() if item not in stored]
                if new:
                    self._store.put_many(recorded.model, digest, [(annotation, "") for annotation in new])
            asked = [self._config.llm_model] * (not isinstance(self._client, NoServer))
            models = [recorded.model] * bool(recorded.answers) + asked
            held = stored_answers(self._store, self._kind.kept_as, models, digest)
            held = [annotation._replace(question=index) for annotation in held]
            for start in range(0, len(held), EMITTED_AT_ONCE):
                self._deliver(held[start : start + EMITTED_AT_ONCE])

    def submit(self, items: Sequence[Item]) -> None:
        """Adds items, the newest last; skips those already pending or in flight; puts aside those that are too long or
        hold a zero byte, which no store keeps. Recorded answers are given at once; without a server to ask, other items
        stay unanswered."""
        answers = [part.recorded.answers for part in self._parts]
        known = [Annotation(x, each[x], index) for index, each in enumerate(answers) for x in items if x in each]
        if known:
            self._answered += [(annotation, "") for annotation in known]
            self._commit()
        askable = []
        for item in items:
            if all(item in each for each in answers):
                continue
            if isinstance(self._client, NoServer):
                self._counts["labels_unanswered"] += 1
                self._emit([Annotation(item, None)])
            elif is_too_long(item):
                self._say(TOO_LONG)
                self._put_aside(item)
            elif any(b"\0" in caption for caption in item):
                self._put_aside(item)
            else:
                askable.append(item)
        self._drop(self._backlog.add(askable))
        self._changed.set()

    async def run(self) -> None:
        """Asks about submitted items, for ever. Raises the error of a damaged label store, or of a bug."""
        while not self._fatal:
            if not self._backlog or not self._room() or self._store_problem:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                questions = await self._asker.turn(self._take)
            except Stopped:
                break
            if questions:
                asking = self._asker.ask(questions, self._policy, self._finished, has_turn=True)
                task = asyncio.get_running_loop().create_task(asking)
                self._tasks.add(task)
                task.add_done_callback(self._task_done)
        if self._fatal:
            raise self._fatal

    async def finish(self, grace_secs: float) -> None:
        """Waits up to `grace_secs` for answers in flight, and commits them."""
        self._end()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_secs)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._commit()
        if self._answered:
            report(f"{len(self._answered):,} labels are lost: {self._store_problem}", to_stderr=True)

    def stats(self) -> dict[str, float | str]:
        """Counts since the start; `state`: ok, retrying, ..., "" without a server; `problem`: its cause, in a line."""
        asker, servers, counts = self._asker, self._client.servers, self._counts + self._asker.counts
        names = ("labels_held", "labels_asked", "answers_unreadable", "requests", "requests_failed", "dropped")
        return {
            "state": self._state(),
            "problem": self._store_problem or str(asker.problem or servers.problem),
            **{name: counts[name] for name in (*names, "put_aside", "labels_unanswered", "filtered")},
            "servers": len(servers),
            "servers_answering": servers.num_answering,
            "backlog": len(self._backlog) + asker.num_waiting,
            "in_flight": self._backlog.num_taken - asker.num_waiting,
            "latency_secs_mean": sum(self._latencies_secs) / max(1, len(self._latencies_secs)),
            **{name: self._client.tokens[name] for name in TOKEN_COUNTS},
            **{f"failures/{name}": count for name, count in (asker.failures + self._failures).items()},
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
        if not (problem := self._asker.problem):
            servers = self._client.servers
            if servers.num_answering < len(servers) > 1:
                return f"{servers.num_answering} of {len(servers)} servers answer"
            return "ok" if self._room() or self._backlog.num_taken else ENOUGH
        if problem.server_at_fault or self._asker.pacer.num_failures >= FAILURES_TO_WAITING:
            return STATES.get(problem.name, WAITING)
        return "retrying"

    def _take(self, max_items: int) -> Sequence[Asked]:
        """Takes the newest questions, apart from those that another run has stored all answers to meanwhile."""
        questions = self._backlog.take(0 if self._store_problem else min(max_items, self._room()))
        held = self._held([question.item for question in questions])
        num_held = Counter(annotation.item for annotation in held)
        known = {item for item, number in num_held.items() if number == len(self._parts)}
        if known:
            self._deliver([annotation for annotation in held if annotation.item in known])
        return [question for question in questions if question.item not in known]

    def _room(self) -> int:
        """Returns how many more answers may be asked for, by `llm_max_labels`."""
        known = self._counts["labels_held"] // len(self._parts) + self._backlog.num_taken
        return max(0, self._config.llm_max_labels - known) if self._config.llm_max_labels else sys.maxsize

    def _held(self, items: Sequence[Item]) -> list[Annotation]:
        """Answers of these items that are stored, of all parts."""
        model, kind, found = self._config.llm_model, self._kind.kept_as, []
        try:
            for index, part in enumerate(self._parts):
                held = checked(kind, self._store.get_many(model, part.digest, items))
                found += [annotation._replace(question=index) for annotation in held]
            return found
        except OSError:
            self._failures["label_store"] += 1
            return []

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() and not isinstance(task.exception(), Stopped):
            self._end(task.exception())
        self._changed.set()

    def _end(self, error: BaseException | None = None) -> None:
        """Starts no more requests; with an error `run` raises it."""
        self._fatal = self._fatal or error
        self._changed.set()
        self._asker.stop()

    def _finished(self, questions: Sequence[Asked]) -> None:
        """Takes in what came of questions."""
        answered = [question for question in questions if not question.error]
        if answered:
            self._answer(answered)
        for question in questions:
            if (error := question.error) and not error.server_at_fault:
                if error.name not in (FILTERED, KIND_RAISES):
                    self._given_up.append(question.item)
                self._counts["filtered"] += error.name == FILTERED
                self._put_aside(question.item)
        self._drop(self._backlog.requeue([x for x in questions if x.error and x.error.server_at_fault]))
        self._changed.set()

    def _answer(self, answered: Sequence[Asked]) -> None:
        self._latencies_secs.append(answered[0].secs[-1])
        if len(self._given_up) > 1:  # the server was at fault, and not each of them
            self._readmit(self._given_up)
        self._given_up = []
        shown = [(question.item, reply) for question in answered[-NUM_ANSWERS:] for reply in question.replies]
        for item, reply in shown[-NUM_ANSWERS:]:
            said = UNREADABLE if reply.answer is None else self._kind.describe(reply.answer)
            self._answers.append(Answer(item, said, self._shown(reply.text)))
        for question in answered:
            self._take_answers(question)
        if len(self._answered) >= self._config.llm_batch_size:
            self._commit()
        elif self._answered and self._commit_timer is None:
            self._commit_timer = asyncio.get_running_loop().call_later(self._store.commit_delay_secs, self._commit)

    def _take_answers(self, question: Asked) -> None:
        """Takes in the answer of each part, of the first reply that has it; puts the item aside where none has."""
        found: dict[int, tuple[Annotation, str]] = {}
        for reply in question.replies:
            for index, answer in enumerate(self._kind.split(reply.answer) if reply.answer is not None else ()):
                if answer is not None:
                    found.setdefault(index, (Annotation(question.item, answer, index), reply.text))
        self._answered += found.values()
        if len(found) == len(self._parts):
            return
        filtered = question.replies[-1].filtered
        self._counts["filtered"] += filtered
        if not filtered:
            # ONI: as published an unreadable answer is the label 0; here the item has none after two of them.
            self._report_unreadable(question.item)
        self._put_aside(question.item, [index for index in range(len(self._parts)) if index not in found])

    def _shown(self, text: str) -> str:
        """Truncates an answer's text to its beginning and end, for the label is in one of them; redacts the key."""
        text = self._client.without_key(text)
        half = MAX_ANSWER_CHARS // 2
        return text if len(text) <= MAX_ANSWER_CHARS else f"{text[:half]} [...] {text[-half:]}"

    def _put_aside(self, item: Item, parts: Sequence[int] = ()) -> None:
        """Gives up on an item: it gets no label in this run, in none of these parts; in no part at all if empty."""
        self._counts["put_aside"] += 1
        if len(parts) in (0, len(self._parts)):  # else other processes' answers are yet to be committed
            self._backlog.finish([item])
        self._emit([Annotation(item, None, index) for index in parts or range(len(self._parts))])

    def _drop(self, items: list[Item]) -> None:
        if items:
            self._counts["dropped"] += len(items)
            self._forget(items)

    def _commit(self) -> None:
        """Commits the answers, and emits them. While the store can't be written, no requests are made."""
        if self._commit_timer:
            self._commit_timer.cancel()
            self._commit_timer = None
        if not self._answered:
            return
        try:
            for index, part in enumerate(self._parts):
                if of_part := [answer for answer in self._answered if answer[0].question == index]:
                    self._store.put_many(self._config.llm_model, part.digest, of_part)
            # Another run's answer that came first is the one that is kept.
            items = [*dict.fromkeys(annotation.item for annotation, _ in self._answered)]
            held = {(kept.item, kept.question): kept for kept in self._held(items)}
        except OSError as error:
            self._failures["label_store"] += 1
            self._store_problem = str(error)
            self._commit_timer = asyncio.get_running_loop().call_later(MAX_BACKOFF_SECS, self._commit)
            return
        except Exception as error:
            self._end(error)
            return
        self._store_problem = ""
        annotations = [held.get((found.item, found.question), found) for found, _ in self._answered]
        self._answered = []
        self._deliver(annotations)
        self._changed.set()

    def _deliver(self, annotations: list[Annotation]) -> None:
        self._counts["labels_held"] += len(annotations)
        self._backlog.finish([annotation.item for annotation in annotations])
        self._emit(annotations)


def is_too_long(item: Item) -> bool:
    return sum(map(len, item)) > MAX_ITEM_BYTES
