"""Asks an LLM which of two descriptions is better, as many at a time as the server takes."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable

from oni_jax.annotation.client import Client, RequestError
from oni_jax.annotation.pacing import Pacer
from oni_jax.annotation.queries.choices import decode_label
from oni_jax.config import AnnotationConfig
from oni_jax.runtime import StopRequest
from oni_jax.types import UNKNOWN, Item

GRACE_SECS = 5.0  # for answers in flight when the run is stopped
POLL_SECS = 0.5  # how soon a request to stop is seen


class LlmAnnotator:
    """Lives in one event loop.

    Args:
        config: how the server is asked.
        client: of a ranking prompt.
        answered: called with each item and its label at once; UNKNOWN: asked twice, and unreadable both times.
        idle: called now and then, for progress.
    """

    def __init__(
        self,
        config: AnnotationConfig,
        client: Client,
        answered: Callable[[Item, int], None],
        idle: Callable[[], None] = lambda: None,
    ):
        self._client, self._answered, self._idle = client, answered, idle
        self._max_retries = config.llm_max_retries
        self._pacer = Pacer(config.llm_batch_size, config.llm_api == "completions", config.llm_max_in_flight)
        self._waiting: deque[Item] = deque()
        self._halves: deque[list[Item]] = deque()  # of lists that failed; asked before the others
        self._num_tries: Counter[Item] = Counter()
        self.counts: Counter[str] = Counter()
        self.problem = ""  # what the server's last failure was; empty when it is well

    async def ask(self, items: Iterable[Item], stop: StopRequest) -> None:
        """Returns when each item is answered, or given up after `llm_max_retries` failures, or at a request to stop."""
        self._waiting.extend(items)
        tasks: set[asyncio.Task[None]] = set()
        while (self._waiting or self._halves or tasks) and not stop:
            wait_secs = self._pacer.wait_secs(len(tasks)) if self._waiting or self._halves else None
            if wait_secs == 0.0:
                tasks.add(asyncio.get_running_loop().create_task(self._ask(self._take())))
                continue
            wait_secs = POLL_SECS if wait_secs is None else min(wait_secs, POLL_SECS)
            tasks = await self._wait(tasks, wait_secs)
            self._idle()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_SECS)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self, tasks: set[asyncio.Task[None]], secs: float) -> set[asyncio.Task[None]]:
        """Waits for one of the tasks to end. Returns the others."""
        if not tasks:
            await asyncio.sleep(secs)
            return tasks
        done, others = await asyncio.wait(tasks, timeout=secs, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # raises what nobody thought of
        return others

    def _take(self) -> list[Item]:
        if self._halves:
            return self._halves.popleft()
        return [self._waiting.popleft() for _ in range(min(self._pacer.num_items(), len(self._waiting)))]

    async def _ask(self, items: list[Item]) -> None:
        try:
            replies = await self._client.ask(items)
        except RequestError as error:
            self._failed(items, error)
            return
        self._succeeded(items)
        unreadable = []
        for item, reply in zip(items, replies):
            if reply.answer is None:
                unreadable.append((item, reply.text))
            else:
                self._label(item, decode_label(reply.answer).label)
        for item, text in unreadable:
            await self._ask_again(item, text)

    async def _ask_again(self, item: Item, first_answer: str) -> None:
        self.counts["unreadable"] += 1
        try:
            reply = await self._client.ask_again(item, first_answer)
        except RequestError as error:
            self._failed([item], error)
            return
        self._succeeded([item])
        self._label(item, UNKNOWN if reply.answer is None else decode_label(reply.answer).label)

    def _succeeded(self, items: list[Item]) -> None:
        self._pacer.succeeded(items)
        self.problem = ""

    def _label(self, item: Item, label: int) -> None:
        self.counts["unknown" if label == UNKNOWN else "labelled"] += 1
        self._num_tries.pop(item, None)
        self._answered(item, label)

    def _failed(self, items: list[Item], error: RequestError) -> None:
        self._pacer.failed(items, error)
        self.counts["failed_requests"] += 1
        self.problem = f"{error.name}: {error.detail}"
        middle = len(items) // 2
        if error.server_at_fault:
            self._waiting.extend(items)  # behind the others, so that one that is always refused holds up none
        elif middle:  # halved until the one bad prompt is found, so that it takes no other with it
            self._halves += [items[:middle], items[middle:]]
        else:
            self._num_tries[items[0]] += 1
            if self._num_tries[items[0]] > self._max_retries:
                self.counts["put_aside"] += 1  # it stays "not done yet", for a later run
            else:
                self._waiting.append(items[0])
