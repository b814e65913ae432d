"""Asks a server until each question has an answer or a failure: retries, backoff, splitting of lists, stopping.

The rule for each kind of failure is in `failures`.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from oni_jax.annotation.answers import Reply
from oni_jax.annotation.client import Client, NoServer
from oni_jax.annotation.failures import CONTEXT_FULL, FILTERED, KIND_RAISES, RequestError
from oni_jax.annotation.pacing import Pacer, backoff_secs
from oni_jax.host.runtime import StopRequest
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError

MAX_FAILURE_NAMES = 64
FAILURES_TO_WAITING = 3  # consecutive failures; fewer may be the prompts'
POLL_SECS = 0.05  # interval of checks for a stop request
T = TypeVar("T")


class Stopped(Exception):
    """A stop came while an answer was waited for."""


class Policy(NamedTuple):
    """Bounds of the requests after one that failed, by what is at fault."""

    refused: int = 0  # a question, alone: a list is split before
    overloaded: float = 0  # a server that says that it has too much to do
    away: float = 0  # a server that does not answer
    asks_again: bool = False  # an unreadable answer is asked for once more
    ends: bool = False  # a server at fault, or failures in a row, stop the asker


@dataclasses.dataclass(eq=False, slots=True)
class Asked:
    """A question, and what has come of it so far."""

    item: Any  # captions, a conversation, or texts to embed
    replies: tuple[Any, ...] = ()  # the first, and the one after an unreadable one
    secs: tuple[float, ...] = ()  # latency of each
    error: RequestError | None = None  # the last failure; None: answered since
    num_refused: int = 0  # failures of the question alone
    num_waits: int = 0  # failures of its server
    refused_at: int | None = None  # requests that had succeeded when a server refused it first
    resume_at: float = 0.0  # end of its backoff

    @property
    def answer(self) -> bytes | None:
        """The answer, as its kind of query encodes it; None: unreadable, or failed."""
        return self.replies[-1].answer if self.replies else None


Outcome = tuple[Sequence[Asked], list[Sequence[Asked]]]  # questions that are finished; lists to be asked about
Request = Callable[[Sequence[Asked]], Awaitable[Sequence[Any]]]  # returns an answer for each; raises RequestError


def about_items(client: Client | NoServer) -> Request:
    """Returns the request that asks about items; again with the first answer, where that could not be read."""

    def request(questions: Sequence[Asked]) -> Awaitable[Sequence[Reply]]:
        first_answers = {question.item: question.replies[0].text for question in questions if question.replies}
        return client.ask([question.item for question in questions], first_answers)

    return request


def one_by_one(call: Callable[[Any], Awaitable[Any]]) -> Request:
    """Returns the request that makes a call for each question."""

    async def request(questions: Sequence[Asked]) -> Sequence[Any]:
        return [await call(question.item) for question in questions]

    return request


class Asker:
    """Makes requests of one client, as many at a time as its server takes.

    Args:
        config: of the server.
        client: redacts the key.
        request: asks about one question, or a list.
        list_size: questions of a list at most, where lists are tried.
        warn: receives each failure after which it asks again.
    """

    def __init__(
        self,
        config: AnnotationConfig,
        client: Client | NoServer,
        request: Request,
        list_size: int = 1,
        warn: Callable[[RequestError], None] = lambda error: None,
    ):
        self._client, self._request, self._warn = client, request, warn
        self.pacer = Pacer(list_size, list_size > 1, config.llm_max_in_flight, config.llm_max_per_sec)
        self._line: deque[asyncio.Event] = deque()  # requests that wait to start; the first is woken
        self._stopping = asyncio.Event()
        self._num_requests = self._num_sent = 0  # requests in flight; requests ever sent
        self.num_waiting = 0  # questions between two requests: in backoff, or in the line
        self.counts: Counter[str] = Counter()  # requests, requests_failed, labels_asked, answers_unreadable
        self.failures: Counter[str] = Counter()  # failures by name
        self.problem: RequestError | None = None  # error of the last request; None: it succeeded
        self.ended_by: RequestError | None = None  # error that `Policy.ends` stopped at

    def stop(self) -> None:
        """Ends all that waits, by Stopped; requests in flight go on."""
        for event in (self._stopping, *self._line):
            event.set()

    async def turn(self, take: Callable[[int], Sequence[Asked]], again: bool = False) -> Sequence[Asked]:
        """Waits until a request may start. Returns what `take` gives for it, of at most so many; nothing: none starts.

        Args:
            take: chooses the questions.
            again: comes before those that have not been asked about.

        Raises:
            Stopped: `stop` was called.
        """
        waiter = asyncio.Event()
        (self._line.appendleft if again else self._line.append)(waiter)
        try:
            while not self._stopping.is_set():
                wait_secs = self.pacer.wait_secs(self._num_requests) if self._line[0] is waiter else None
                if wait_secs == 0.0:
                    if questions := take(self.pacer.num_items()):
                        self.pacer.sent(len(questions))
                        self._num_requests += 1
                    return questions
                waiter.clear()
                await _wait(waiter, wait_secs)
            raise Stopped
        finally:
            self._line.remove(waiter)
            self._wake_first()

    async def ask(
        self,
        questions: Sequence[Asked],
        policy: Policy,
        deliver: Callable[[Sequence[Asked]], None] = lambda questions: None,
        has_turn: bool = False,
    ) -> None:
        """Asks until each question has an answer, or an `error` after which the policy asks no more.

        Args:
            questions: a list that is tried as one request.
            policy: says how often.
            deliver: receives the questions, as they are finished.
            has_turn: `turn` has returned them.

        Raises:
            Stopped: `stop` was called.
            UserError: no answer of this server is of use.
        """
        pieces, again = deque([questions]), False
        while pieces:
            piece = pieces.popleft()
            if not has_turn:
                await _wait(self._stopping, max(question.resume_at for question in piece) - time.monotonic())
                await self.turn(lambda _, piece=piece: piece, again)
                self.num_waiting -= len(piece) * again
            finished, rest = await self._attempt(piece, policy)
            self.num_waiting += sum(map(len, rest))
            pieces += rest
            has_turn, again = False, True
            if finished:
                deliver(finished)

    async def _attempt(self, piece: Sequence[Asked], policy: Policy) -> Outcome:
        """Makes one request. Returns the questions that are finished, and the lists that are to be asked about."""
        self._num_sent += 1
        number, alone, start = self._num_sent, self._num_requests == 1, time.monotonic()
        try:
            replies = await self._request(piece)
        except RequestError as error:
            return self._failed(piece, policy, self._blamed(piece, error, alone and number == self._num_sent))
        except UserError:  # no answer of this server is of use
            raise
        except Exception as error:  # a bug must not end the others either
            detail = self._client.line(str(error))
            return self._failed(piece, policy, RequestError(f"unexpected_{type(error).__name__}", detail))
        finally:
            self._num_requests -= 1
            self._wake_first()
        return self._succeeded(piece, policy, replies, time.monotonic() - start)

    def _wake_first(self) -> None:
        if self._line:
            self._line[0].set()

    def _succeeded(self, piece: Sequence[Asked], policy: Policy, replies: Sequence[Any], secs: float) -> Outcome:
        self.pacer.succeeded([question.item for question in piece])
        self.problem = None
        self.counts["requests"] += 1
        self.counts["labels_asked"] += len(piece)
        finished, again = [], []
        for question, reply in zip(piece, replies):
            question.error, question.num_refused, question.refused_at = None, 0, None
            question.replies, question.secs = (*question.replies, reply), (*question.secs, secs)
            if not (failure := policy.asks_again and reply.failure):
                finished.append(question)
                continue
            self.failures[failure] += 1
            if failure == KIND_RAISES:
                question.error, question.replies = RequestError(failure, reply.raised), ()
            unreadable = failure not in (FILTERED, KIND_RAISES)
            self.counts["answers_unreadable"] += unreadable
            (again if unreadable and len(question.replies) == 1 else finished).append(question)
        return finished, [again] if again else []

    def _failed(self, piece: Sequence[Asked], policy: Policy, error: RequestError) -> Outcome:
        items = [question.item for question in piece]
        if error.name == FILTERED:
            self.pacer.filtered(items)
            self.problem = None
        elif error.name != KIND_RAISES:
            self.pacer.failed(items, error)
            self.problem = error
        self.counts["requests"] += 1
        self.counts["requests_failed"] += 1
        is_named = error.name in self.failures or len(self.failures) < MAX_FAILURE_NAMES
        self.failures[error.name if is_named else "other"] += 1
        if len(piece) > 1 and not error.server_at_fault:
            middle = len(piece) // 2  # bisects to the one at fault, so that the others get their answers
            return [], [piece[:middle], piece[middle:]]
        self.counts["labels_asked"] += error.name == FILTERED
        may_retry = [_may_retry(question, policy, error) for question in piece]
        if all(may_retry):
            self._warn(error)
            return [], [piece]
        if policy.ends and self.problem and (error.server_at_fault or self.pacer.num_failures >= FAILURES_TO_WAITING):
            self.ended_by = self.ended_by or error
            self.stop()
        return piece, []

    def _blamed(self, piece: Sequence[Asked], error: RequestError, alone: bool) -> RequestError:
        """Returns the error with whose fault it is.

        A full context is the fault of parallel requests together, or of one that was alone. A refusal as of a server
        is the questions' fault if others have succeeded since: some answer 403 to a prompt that moderation flags.
        """
        if error.name == CONTEXT_FULL:
            if alone:
                return RequestError(f"http_{error.status}", error.detail, error.status)
            return dataclasses.replace(error, server_at_fault=True)
        if not error.server_at_fault or not error.status or error.is_passing:
            return error
        num_succeeded = self.counts["requests"] - self.counts["requests_failed"]
        for question in piece:
            question.refused_at = num_succeeded if question.refused_at is None else question.refused_at
        if min(question.refused_at or 0 for question in piece) < num_succeeded:
            return RequestError(error.name, error.detail, error.status)
        return error


def _may_retry(question: Asked, policy: Policy, error: RequestError) -> bool:
    """Keeps a question's failure. Returns whether the policy asks about it again, after a backoff."""
    question.error = error
    if error.name in (FILTERED, KIND_RAISES):
        return False
    if error.server_at_fault:  # its backoff is the pacer's
        question.num_waits += 1
        limit = policy.overloaded if error.is_overload else 0 if error.status else policy.away
        return question.num_waits <= limit
    question.num_refused += 1
    question.resume_at = time.monotonic() + backoff_secs(question.num_refused - 1)
    return question.num_refused <= policy.refused


async def _wait(event: asyncio.Event, secs: float | None) -> None:
    """Waits until an event is set, or some seconds have passed."""
    if secs is None:
        await event.wait()
    elif secs > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(secs):
                await event.wait()


async def unless_stopped(awaited: Coroutine[Any, Any, T], stop: StopRequest) -> T:
    """Waits for what is awaited. Raises Stopped: a stop request came first."""
    task = asyncio.ensure_future(awaited)
    while not stop:
        done, _ = await asyncio.wait([task], timeout=POLL_SECS)
        if done:
            return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    raise Stopped
