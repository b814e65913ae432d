"""Asking one server about items, as a run does, and keeping what came of each."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oni_jax.annotation.answers import Reply
from oni_jax.annotation.client import NO_ANSWERS, Client, NoServer, make_client
from oni_jax.annotation.failures import BALANCE, CONTEXT_FULL, FILTERED, OVERLOADED, QUOTA, RequestError
from oni_jax.annotation.labeller import FAILURES_TO_WAITING
from oni_jax.annotation.pacing import Pacer
from oni_jax.annotation.prompts import Prompt
from oni_jax.annotation.recorded import Recorded
from oni_jax.annotation.service import Question
from oni_jax.host.runtime import StopRequest
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.types import Item

POLL_SECS = 0.05  # between checks for a stop request


class Asked(NamedTuple):
    """A query, and what came of it."""

    item: Item
    replies: Sequence[Reply] = ()  # the first, and the one to the same query again where the first was unreadable
    secs: Sequence[float] = ()  # latency of each
    problem: str = ""  # of a query that failed

    @property
    def answer(self) -> bytes | None:
        """The answer, as its kind of query encodes it; None: unreadable, or failed."""
        return self.replies[-1].answer if self.replies else None


class Asker:
    """Asks about each item once, and once more where the answer is unreadable.

    It stops at a server that refuses, or fails several times in a row: `problem` says why. An overloaded server is
    asked again, with backoff.

    Args:
        client: of the server.
        items: what is asked about, each once.
        report: receives what came of each, in the order of the items.
    """

    def __init__(
        self, config: AnnotationConfig, client: Client, items: Sequence[Item], report: Callable[[Asked], None]
    ):
        self._config, self._client, self._items, self._report = config, client, items, report
        self._pacer = Pacer(1, False, config.llm_max_in_flight, config.llm_max_per_sec)
        self._pending = deque(range(len(items)))
        self._num_tries: Counter[int] = Counter()  # refused since the server was overloaded
        self._found: dict[int, Asked] = {}
        self._num_reported = 0
        self.problem: RequestError | None = None

    async def run(self, stop: StopRequest) -> list[Asked]:
        """Returns what came of the items; of some only, where it stopped early."""
        tasks: set[asyncio.Task[None]] = set()
        while not stop and ((self._pending and not self.problem) or tasks):
            may_ask = self._pending and not self.problem
            wait_secs = self._pacer.wait_secs(len(tasks)) if may_ask else None
            if wait_secs == 0.0:
                self._pacer.sent(1)
                tasks.add(asyncio.create_task(self._ask(self._pending.popleft())))
                continue
            pause = POLL_SECS if wait_secs is None else min(POLL_SECS, wait_secs)
            if tasks:
                done, tasks = await asyncio.wait(tasks, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # raises the error of a bug
            else:
                await asyncio.sleep(pause)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._report_found(in_order=False)
        return [self._found[index] for index in sorted(self._found)]

    async def _ask(self, index: int) -> None:
        item = self._items[index]
        replies: list[Reply] = []
        secs: list[float] = []
        try:
            while not replies or (len(replies) == 1 and replies[0].answer is None and not replies[0].filtered):
                before = {item: replies[0].text} if replies else NO_ANSWERS
                start = time.monotonic()
                replies += await self._client.ask([item], before)
                secs.append(time.monotonic() - start)
                self._pacer.succeeded([item])
        except RequestError as error:
            self._failed(index, error)
        else:
            self._found[index] = Asked(item, replies, secs)
        self._report_found()

    def _failed(self, index: int, error: RequestError) -> None:
        if error.name == FILTERED:
            self._pacer.filtered([self._items[index]])
            self._found[index] = Asked(self._items[index], problem=str(error))
            return
        self._pacer.failed([self._items[index]], error)
        self._num_tries[index] += 1
        is_overloaded = error.name == CONTEXT_FULL or error.status in OVERLOADED
        is_overloaded = is_overloaded and error.name not in (QUOTA, BALANCE)
        if is_overloaded and self._num_tries[index] <= self._config.llm_max_retries:
            self._pending.appendleft(index)
            return
        if error.server_at_fault or self._pacer.num_failures >= FAILURES_TO_WAITING:
            self.problem = self.problem or error
        self._found[index] = Asked(self._items[index], problem=str(error))

    def _report_found(self, in_order: bool = True) -> None:
        """Reports what came of the items up to the first that is not finished; all the rest without `in_order`."""
        while self._num_reported < len(self._items) and (self._num_reported in self._found or not in_order):
            if asked := self._found.get(self._num_reported):
                self._report(asked)
            self._num_reported += 1


def ask_all(
    question: Question, items: Sequence[Item], report: Callable[[Asked], None], stop: StopRequest
) -> tuple[list[Asked], RequestError | None]:
    """Looks recorded answers up, and asks about the other items; see `Asker`. Without a server these have none.

    Returns what came of the items, and what ended it early.

    Raises:
        UserError: bad address, key or chat template.
    """
    config, prompt, recorded = question[:3]
    known = [_look_up(prompt, item, recorded) for item in items if item in recorded.answers]
    for asked in known:
        report(asked)
    rest = [item for item in items if item not in recorded.answers]

    async def body() -> tuple[list[Asked], RequestError | None]:
        async with make_client(config, prompt) as client:
            if isinstance(client, NoServer):
                missing = [Asked(item, problem="has no recorded answer, and no server is named") for item in rest]
                for asked in missing:
                    report(asked)
                return missing, None
            asker = Asker(config, client, rest, report)
            return await asker.run(stop), asker.problem

    found, problem = asyncio.run(body())
    return known + found, problem


def _look_up(prompt: Prompt, item: Item, recorded: Recorded) -> Asked:
    answer = recorded.answers[item]
    return Asked(item, [Reply(f"recorded: {', '.join(prompt.kind.read_as(answer))}", answer)], [0.0])
