"""Asking about pairs: what becomes of answers and failures. The client is a stand-in."""

import asyncio
import contextlib
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from oni_jax.annotation.answers import Reply
from oni_jax.annotation.client import RequestError
from oni_jax.annotation.queries.choices import encode_label
from oni_jax.annotation.servers import Servers
from oni_jax.host.runtime import StopRequest
from oni_jax.offline import pair_annotation
from oni_jax.offline.pair_config import AnnotatePairs
from oni_jax.offline.preference_file import PreferenceFile
from oni_jax.settings.fields import with_values
from oni_jax.types import UNKNOWN, Item
from tests.offline.pairs import random_dataset

ITEMS: list[Item] = [(b"a%d" % i, b"b%d" % i) for i in range(12)]
READABLE = Reply("1", encode_label(0, 1.0))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("oni_jax.annotation.pacing.MAX_BACKOFF_SECS", 0.001)


class StandIn:
    """A client that answers as `script` says, and notes what it was asked."""

    def __init__(self, script: Callable[[Sequence[Item]], Sequence[Reply]]):
        self.script = script
        self.asked: list[list[Item]] = []
        self.again: list[tuple[Item, str]] = []
        self.second = READABLE
        self.num_open = self.most_open = 0
        self.secs = 0.001  # time of an answer

        self.tokens, self.events = Counter[str](), Counter[str]()
        self.servers = Servers(())

    async def __aenter__(self) -> "StandIn":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def without_key(self, text: str) -> str:
        return text

    async def ask(self, items: Sequence[Item], first_answers: Mapping[Item, str]) -> list[Reply]:
        again = [(item, first_answers[item]) for item in items if item in first_answers]
        if again:
            self.again += again
            return [self.second] * len(again)
        self.asked.append(list(items))
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        await asyncio.sleep(self.secs + 0.02 * (len(self.asked) % 2))  # so that not all end together
        self.num_open -= 1
        return list(self.script(items))


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """ask(client, stop, **settings) -> (labels of the items that are done, what was printed)."""
    monkeypatch.setattr(
        pair_annotation, "describe_pairs", lambda preference, dataset, rows: [ITEMS[row] for row in rows]
    )

    def run(client: StandIn, stop: StopRequest | None = None, **settings: Any) -> tuple[dict[Item, int], str]:
        directory = random_dataset(tmp_path, num_pairs=len(ITEMS))
        monkeypatch.setattr(pair_annotation, "make_client", lambda config, prompt: client)
        values = {"directory": str(directory), "llm_server_addr": "127.0.0.1:1", "custom_annotator_string": "mine"}
        config = with_values(AnnotatePairs(), values | settings)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert pair_annotation.annotate_pairs(config, StopRequest() if stop is None else stop) == 0
        with PreferenceFile(str(directory), "mine", len(ITEMS), range(len(ITEMS))) as file:
            undone = file.unfinished().tolist()
        labels = np.load(file.path).tolist()
        return {ITEMS[i]: labels[i] for i in range(len(ITEMS)) if i not in undone}, printed.getvalue()

    return run


def test_each_is_asked_once_and_no_more_at_a_time_than_allowed(ask):
    client = StandIn(lambda items: [READABLE] * len(items))
    labels, _ = ask(client, llm_max_in_flight=3)
    assert labels == dict.fromkeys(ITEMS, 0)
    assert sorted(item for items in client.asked for item in items) == sorted(ITEMS)
    assert client.most_open == 3


@pytest.mark.parametrize("second, label", [(Reply("2", encode_label(1, 1.0)), 1), (Reply("?", None), UNKNOWN)])
def test_an_unreadable_answer_is_asked_for_once_more_in_the_conversation(ask, second, label):
    client = StandIn(lambda items: [Reply("well...", None) if item == ITEMS[3] else READABLE for item in items])
    client.second = second
    labels, printed = ask(client)
    assert client.again == [(ITEMS[3], "well...")]
    assert labels == {**dict.fromkeys(ITEMS, 0), ITEMS[3]: label}
    assert ("1 unknown" in printed) == (label == UNKNOWN)


def test_one_bad_prompt_takes_no_other_with_it(ask):
    def script(items):
        if ITEMS[5] in items:
            raise RequestError("http_400", status=400)
        return [READABLE] * len(items)

    client = StandIn(script)
    labels, printed = ask(client, llm_api="completions", llm_batch_size=4, llm_max_retries=2)
    assert labels == {item: 0 for item in ITEMS if item != ITEMS[5]}
    assert "1 put aside for a later run" in printed
    assert sum(items == [ITEMS[5]] for items in client.asked) == 3
    assert max(map(len, client.asked)) == 4


def test_a_server_at_fault_is_waited_for_and_costs_no_retries(ask):
    failures = iter([True] * 20)

    def script(items):
        if next(failures, False):
            raise RequestError("unreachable", server_at_fault=True)
        return [READABLE] * len(items)

    labels, printed = ask(StandIn(script), llm_max_retries=0)
    assert len(labels) == len(ITEMS) and "20 requests failed" in printed and "put aside" not in printed


def test_stop_request_ends_the_description_of_pairs(ask, monkeypatch):
    stop, described = StopRequest(), []

    def describe(preference, dataset, rows):
        described.append(rows.tolist())
        stop.reason = "SIGINT"
        return [ITEMS[row] for row in rows]

    monkeypatch.setattr(pair_annotation, "ROWS_AT_ONCE", 4)
    monkeypatch.setattr(pair_annotation, "describe_pairs", describe)
    ask(StandIn(lambda items: [READABLE] * len(items)), stop)
    assert described == [[0, 1, 2, 3]]


def test_a_request_to_stop_keeps_the_answers_in_flight(ask):
    stop = StopRequest()

    def script(items):
        if len(client.asked) >= 5:
            stop.reason = "SIGINT"
            client.secs = 5 * pair_annotation.POLL_SECS  # the stop is seen before the rest is answered
        return [READABLE] * len(items)

    client = StandIn(script)
    labels, _ = ask(client, stop, llm_max_in_flight=2)
    assert 5 <= len(labels) < len(ITEMS)
    assert sorted(labels) == sorted(item for items in client.asked for item in items)
