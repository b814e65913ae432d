"""Asking one server about items, as a run does, and keeping what came of each."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence

from oni_jax.annotation.answers import Reply
from oni_jax.annotation.asker import Asked, Asker, Policy, Stopped, about_items, unless_stopped
from oni_jax.annotation.client import Client, NoServer, make_client
from oni_jax.annotation.failures import RequestError
from oni_jax.annotation.prompts import Prompt
from oni_jax.annotation.recorded import Recorded
from oni_jax.annotation.service import Question
from oni_jax.host.runtime import StopRequest
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.types import Item

UNANSWERED = RequestError("unanswered", "it has no recorded answer, and no server is named")


async def _ask(
    config: AnnotationConfig, client: Client, items: Sequence[Item], report: Callable[[Asked], None], stop: StopRequest
) -> tuple[list[Asked], RequestError | None]:
    """Asks about each item once, and once more where the answer is unreadable; reports them in their order.

    It stops at a server that refuses, or fails several times in a row. An overloaded server is asked again, with
    backoff.

    Returns:
        What came of the items, of some only where it stopped early; and why it did.
    """
    asker = Asker(config, client, about_items(client))
    policy = Policy(overloaded=config.llm_max_retries, asks_again=True, ends=True)
    left = deque((asked, asyncio.ensure_future(asker.ask([asked], policy))) for asked in map(Asked, items))
    found: list[Asked] = []

    async def report_all() -> None:
        while left:
            asked, task = left[0]
            with contextlib.suppress(Stopped):
                await task
                found.append(asked)
                report(asked)
            left.popleft()

    with contextlib.suppress(Stopped):
        await unless_stopped(report_all(), stop)
    for asked, task in left:  # finished behind one that is not
        if task.done() and not task.cancelled() and not task.exception():
            found.append(asked)
            report(asked)
        task.cancel()
    return found, asker.ended_by


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
    return Asked(item, (Reply(f"recorded: {', '.join(prompt.kind.read_as(answer))}", answer),), (0.0,))
