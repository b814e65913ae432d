"""Asking about pairs: what becomes of answers and failures. The client is a stand-in."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from oni_jax.annotation.answers import Reply
from oni_jax.annotation.client import RequestError
from oni_jax.annotation.queries.choices import encode_label
from oni_jax.config import AnnotationConfig
from oni_jax.preferences.llm_annotator import LlmAnnotator
from oni_jax.runtime import StopRequest
from oni_jax.types import UNKNOWN, Item

ITEMS: list[Item] = [(b"a%d" % i, b"b%d" % i) for i in range(12)]
READABLE = Reply("1", encode_label(0, 1.0))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("oni_jax.annotation.pacing.pause_secs", lambda num_failures: 0.001)


class StandIn:
    """A client that answers as `script` says, and notes what it was asked."""

    def __init__(self, script: Callable[[Sequence[Item]], Sequence[Reply]]):
        self.script = script
        self.asked: list[list[Item]] = []
        self.again: list[tuple[Item, str]] = []
        self.second = READABLE
        self.num_open = self.most_open = 0

    async def ask(self, items: Sequence[Item]) -> list[Reply]:
        self.asked.append(list(items))
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        await asyncio.sleep(0.001 + 0.02 * (len(self.asked) % 2))  # so that not all end together
        self.num_open -= 1
        return list(self.script(items))

    async def ask_again(self, item: Item, first_answer: str) -> Reply:
        self.again.append((item, first_answer))
        return self.second


def run(client: Any, stop: StopRequest | None = None, **settings: Any) -> tuple[dict[Item, int], Counter[str]]:
    labels: dict[Item, int] = {}

    def answered(item: Item, label: int) -> None:
        assert item not in labels
        labels[item] = label

    annotator = LlmAnnotator(AnnotationConfig(**settings), client, answered)
    asyncio.run(asyncio.wait_for(annotator.ask(ITEMS, StopRequest() if stop is None else stop), 20))
    return labels, annotator.counts


def test_each_is_asked_once_and_no_more_at_a_time_than_allowed():
    client = StandIn(lambda items: [READABLE] * len(items))
    labels, _ = run(client, llm_max_in_flight=3)
    assert labels == dict.fromkeys(ITEMS, 0)
    assert sorted(item for items in client.asked for item in items) == sorted(ITEMS)
    assert client.most_open == 3


@pytest.mark.parametrize("second, label", [(Reply("2", encode_label(1, 1.0)), 1), (Reply("?", None), UNKNOWN)])
def test_an_unreadable_answer_is_asked_for_once_more_in_the_conversation(second, label):
    client = StandIn(lambda items: [Reply("well...", None) if item == ITEMS[3] else READABLE for item in items])
    client.second = second
    labels, counts = run(client)
    assert client.again == [(ITEMS[3], "well...")]
    assert labels == {**dict.fromkeys(ITEMS, 0), ITEMS[3]: label}
    assert counts["unknown"] == (label == UNKNOWN)


def test_one_bad_prompt_takes_no_other_with_it():
    def script(items):
        if ITEMS[5] in items:
            raise RequestError("http_400", status=400)
        return [READABLE] * len(items)

    client = StandIn(script)
    labels, counts = run(client, llm_api="completions", llm_batch_size=4, llm_max_retries=2)
    assert labels == {item: 0 for item in ITEMS if item != ITEMS[5]}
    assert counts["put_aside"] == 1
    assert sum(items == [ITEMS[5]] for items in client.asked) == 3
    assert max(map(len, client.asked)) == 4


def test_a_server_at_fault_is_waited_for_and_costs_no_retries():
    failures = iter([True] * 20)

    def script(items):
        if next(failures, False):
            raise RequestError("unreachable", server_at_fault=True)
        return [READABLE] * len(items)

    labels, counts = run(StandIn(script), llm_max_retries=0)
    assert len(labels) == len(ITEMS) and counts["failed_requests"] == 20 and not counts["put_aside"]


def test_a_request_to_stop_keeps_the_answers_in_flight():
    stop = StopRequest()

    def script(items):
        stop.reason = "SIGINT" if len(client.asked) >= 5 else ""
        return [READABLE] * len(items)

    client = StandIn(script)
    labels, _ = run(client, stop, llm_max_in_flight=2)
    assert 5 <= len(labels) < len(ITEMS)
    assert sorted(labels) == sorted(item for items in client.asked for item in items)
