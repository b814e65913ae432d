"""Asking one server about items, as a run does, and keeping what came of each."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence

from oni_jax.annotation.answers import Reply
from oni_jax.annotation.asker import Asked, Asker, Policy, Stopped, about_items, unless_stopped
from oni_jax.annotation.client import Client, NoServer, make_client
from oni_jax.annotation.failures import FILTERED, KIND_RAISES, RequestError
from oni_jax.annotation.labeller import FAILURES_TO_WAITING
from oni_jax.annotation.prompts import Prompt
from oni_jax.annotation.recorded import Recorded
from oni_jax.annotation.service import Question
from oni_jax.host.runtime import StopRequest
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.types import Item

UNANSWERED = RequestError("unanswered", "it has no recorded answer, and no server is named")


class InOrder:
    """Reports what came of questions in their order, each once those before it are finished.

    Args:
        report: receives what came of each.
    """

    def __init__(self, questions: Sequence[Asked], report: Callable[[Asked], None]):
        self._questions, self._report = questions, report
        self.finished: set[int] = set()  # indices
        self._num_reported = 0

    def finish(self, index: int) -> None:
        self.finished.add(index)
        while self._num_reported in self.finished:
            self._report(self._questions[self._num_reported])
            self._num_reported += 1

    def report_rest(self) -> list[Asked]:
        """Reports those finished behind one that is not. Returns all that are finished."""
        indices = sorted(self.finished)
        for index in indices[self._num_reported :]:
            self._report(self._questions[index])
        return [self._questions[index] for index in indices]


async def _ask(
    config: AnnotationConfig, client: Client, items: Sequence[Item], report: Callable[[Asked], None], stop: StopRequest
) -> tuple[list[Asked], RequestError | None]:
    """Asks about each item once, and once more where the answer is unreadable.

    It stops at a server that refuses, or fails several times in a row. An overloaded server is asked again, with
    backoff.

    Returns:
        What came of the items, of some only where it stopped early; and why it did.
    """
    asker, policy = Asker(config, client, about_items(client)), Policy(0, config.llm_max_retries, asks_again=True)
    questions, problems = [Asked(item) for item in items], list[RequestError]()
    results = InOrder(questions, report)

    async def work(line: Iterator[tuple[int, Asked]]) -> None:
        with contextlib.suppress(Stopped):
            for index, question in line:
                await asker.ask([question], policy)
                results.finish(index)
                error = question.error
                if error and error.name not in (FILTERED, KIND_RAISES):
                    if error.server_at_fault or asker.num_failures >= FAILURES_TO_WAITING:
                        problems.append(error)
                        asker.stop()

    async def work_all() -> None:
        line = enumerate(questions)
        await asyncio.gather(*(work(line) for _ in range(min(len(items), config.llm_max_in_flight))))

    with contextlib.suppress(Stopped):
        await unless_stopped(work_all(), stop)
    return results.report_rest(), next(iter(problems), None)


def ask_all(
    question: Question, items: Sequence[Item], report: Callable[[Asked], None], stop: StopRequest
) -> tuple[list[Asked], RequestError | None]:
    """Looks recorded answers up, and asks about the other items; see `_ask`. Without a server these have none.

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
                missing = [Asked(item, error=UNANSWERED) for item in rest]
                for asked in missing:
                    report(asked)
                return missing, None
            return await _ask(config, client, rest, report, stop)

    found, problem = asyncio.run(body())
    return known + found, problem


def _look_up(prompt: Prompt, item: Item, recorded: Recorded) -> Asked:
    answer = recorded.answers[item]
    return Asked(item, [Reply(f"recorded: {', '.join(prompt.kind.read_as(answer))}", answer)], [0.0])
