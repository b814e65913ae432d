"""Whatever is read is a label, or an error of a known kind, in a line.

`pytest --hypothesis-profile long tests/annotation/test_fuzzing.py` tries 20,000 inputs of each kind.
"""

import asyncio
import contextlib
import dataclasses
import ipaddress
import json
import math
import re
import urllib.parse
from typing import Any

import pytest
import yarl
from hypothesis import given, settings
from hypothesis import strategies as st

from oni_jax.annotation import failures, pacing
from oni_jax.annotation.address import server_url
from oni_jax.annotation.client import Client, RequestError
from oni_jax.annotation.failures import MAX_DETAIL_CHARS
from oni_jax.annotation.judge_answers import read_prompts
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.pacing import MAX_RETRY_AFTER_SECS, Pacer
from oni_jax.annotation.prompts import load_chat_template, render_chat
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from tests.annotation.fake_server import choices
from tests.annotation.test_answers import NESTED
from tests.annotation.test_faults import FAULTS, good_choices
from tests.annotation.test_labeller import CONFIG, all_messages, run
from tests.support.asking import KINDS, judge_prompt, label_of, load_prompt

KEY = "sk-S3CRET-of-a-test"
NAMES = "unreachable wrong_key wrong_model redirected timed_out too_slow disconnected bad_http too_large broken_json"
NAMES = {*NAMES.split(), "too_few_choices", "too_many_choices", "bad_indices", "error_answer", "web_page", "filtered"}
NAMES |= {"quota_used_up", "balance_used_up", "context_full", "only_reasoning"}
LABELS = {"classification": (0, 1, None), "ranking": (0, 1, 2, None)}
ITEM = (b"You kill the newt!", b"It's a wall.")


def check_error(error: RequestError) -> None:
    assert error.name in NAMES or re.fullmatch(r"http_\d{3}", error.name)
    assert error.name in str(failures.__doc__) or error.name.startswith("http_")
    assert error.detail.isprintable() and len(error.detail) < MAX_DETAIL_CHARS + 150 and KEY not in error.detail
    assert error.retry_after_secs >= 0.0


def build_client(address="host", kind="classification", **options) -> Client:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEY_OF_A_TEST", KEY)
        config = AnnotationConfig(
            llm_server_addr=address, llm_api="completions", llm_api_key="env:KEY_OF_A_TEST", **options
        )
        return Client(config, load_prompt(config, kind))


CLIENTS = {kind: build_client(kind=kind) for kind in KINDS}
TEXT = st.text() | st.sampled_from(["FOO", "<label>BAR</label>", "1", '("best_description": 2)', KEY, "\x1b[2J"])
CHOICE = st.fixed_dictionaries(
    {"index": st.integers(-1, 4)}, optional={"text": TEXT, "logprobs": NESTED, "message": NESTED}
)
ANSWER = st.fixed_dictionaries({"choices": st.lists(CHOICE | NESTED, max_size=4) | NESTED}) | NESTED
BODY = st.binary() | ANSWER.map(lambda answer: json.dumps(answer).encode()) | st.text().map(str.encode)
CUT_BODY = st.tuples(BODY, st.integers(0, 400), st.binary(max_size=4)).map(
    lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + 1 :]
)


@pytest.mark.parametrize("kind", KINDS)
@given(raw=BODY | CUT_BODY, num_choices=st.integers(1, 4))
def test_any_body(kind, raw, num_choices):
    try:
        replies = CLIENTS[kind]._read(raw, num_choices)
    except RequestError as error:
        check_error(error)
    else:
        assert len(replies) == num_choices
        assert all(label_of(reply) in LABELS[kind] for reply in replies)
        assert all(reply.answer is None or QUERIES[kind].is_answer(reply.answer) for reply in replies)


@given(st.permutations(range(6)), st.lists(st.sampled_from(["FOO", "BAR", ""]), min_size=6, max_size=6), st.data())
def test_no_label_goes_to_another_prompt(order, words, data):
    """However a list of choices is shuffled, cut, doubled or numbered, each prompt gets its word or none does."""
    entries: list[dict[str, Any]] = [{"index": index, "text": words[index]} for index in order]
    edits = st.sampled_from(["drop", "double", "renumber", "none"])
    place, edit = data.draw(st.integers(0, 5)), data.draw(edits)
    if edit == "drop":
        del entries[place]
    elif edit == "double":
        entries[place] = entries[data.draw(st.integers(0, 5))]
    elif edit == "renumber":
        entries[place] = {
            **entries[place],
            "index": data.draw(st.integers(-1, 7) | st.floats() | st.text() | st.none()),
        }
    labels = {"FOO": 1, "BAR": 0, "": None}
    try:
        replies = CLIENTS["classification"]._read(json.dumps({"choices": entries}).encode(), 6)
    except RequestError as error:
        check_error(error)
        assert edit != "none"
    else:
        assert [label_of(reply) for reply in replies] == [labels[word] for word in words]


STATUS = st.sampled_from(
    ["200 OK", "429 Slow down", "302 Found", "404 No", "500 Oops", "100 Continue", "999 ?", "20 x"]
)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["Content-Length", "Transfer-Encoding", "Content-Encoding", "Retry-After", "Location", "Connection"]
    ),
    st.sampled_from(
        ["0", "5", "-1", "999999999", "chunked", "gzip", "deflate", "br", "close", "http://h/", "\x80", KEY]
    )
    | st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=20),
    max_size=4,
)


def http(status: str, headers: dict[str, str], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


RESPONSE = st.builds(http, STATUS, HEADERS, BODY)


class RawServer:
    """Answers any request with given bytes, and closes the connection. Its event loop stands between requests."""

    def __init__(self):
        self.raw = b""
        self.loop = asyncio.new_event_loop()
        self.server = self.loop.run_until_complete(asyncio.start_server(self._answer, "127.0.0.1", 0))
        self.client = build_client(f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}", llm_timeout_secs=20.0)
        self.loop.run_until_complete(self.client.__aenter__())

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            writer.write(self.raw)
            await writer.drain()
        writer.close()

    def ask(self, raw: bytes):
        self.raw = raw
        return self.loop.run_until_complete(self.client.ask([(b"Hm.",)]))

    def close(self) -> None:
        self.loop.run_until_complete(self.client.__aexit__())
        self.server.close()
        self.loop.run_until_complete(self.server.wait_closed())
        self.loop.close()


@pytest.fixture(scope="module")
def raw_server():
    server = RawServer()
    yield server
    server.close()


@given(raw=RESPONSE | st.binary() | st.tuples(RESPONSE, st.integers(0, 200)).map(lambda t: t[0][: t[1]]))
def test_any_http(raw_server, raw):
    try:
        (reply,) = raw_server.ask(raw)
    except RequestError as error:
        check_error(error)
    else:
        assert label_of(reply) in (0, 1, None)


@given(
    st.text()
    | st.from_regex(r"\d+(\.\d+)?|-?\d+e\d+")
    | st.datetimes().map(lambda t: t.strftime("%a, %d %b %Y %T GMT"))
)
def test_any_retry_after(text):
    secs = failures.retry_after_secs(text)
    assert secs >= 0.0 and not math.isnan(secs)
    pacer = Pacer(100, True, 16)
    pacer.failed([ITEM], RequestError("http_429", server_at_fault=True, retry_after_secs=secs))
    wait_secs = pacer.wait_secs(0)
    assert wait_secs is not None and 0.0 <= wait_secs <= MAX_RETRY_AFTER_SECS


@given(st.integers(100, 999), st.dictionaries(st.just("Retry-After"), st.text()), st.text(), st.text(min_size=1))
def test_any_refusal(status, headers, words, model):
    line = CLIENTS["ranking"].line
    check_error(failures.read_refusal(status, headers, line(words), line(model)))


@given(st.text(), st.integers(0, 400), st.text())
def test_the_key_is_in_no_line(before, num_blanks, after):
    text = before + "x" * num_blanks + KEY + after
    line = CLIENTS["ranking"].line(text)
    assert line.isprintable() and len(line) <= MAX_DETAIL_CHARS and "S3CRET" not in line


PROMPT_TEXT = (
    st.text()
    | st.lists(st.text(), max_size=3)
    | st.sampled_from(
        ["{message}", "{first}{second}", ["{goal}", "{answer}", "{message}"], "{goal}{answer}{second}{first}", "\ud800"]
    )
)
TEXTS = st.dictionaries(st.sampled_from(["defaultgoal", "reasoned", "label"]) | st.text(), PROMPT_TEXT, max_size=4)
PROMPT_FILE = st.fixed_dictionaries(
    {"kind": st.sampled_from(["classification", "ranking", "x"]) | NESTED, "system": PROMPT_TEXT, "user": PROMPT_TEXT},
    optional={
        "goals": TEXTS | NESTED,
        "answers": TEXTS | NESTED,
        "again": PROMPT_TEXT,
        "answer_key": st.text() | NESTED,
    },
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzzing") / "file"


@given(raw=(PROMPT_FILE | NESTED).map(lambda data: json.dumps(data).encode()) | BODY | CUT_BODY)
def test_any_prompt_file(path, raw):
    path.write_bytes(raw)
    for kind in KINDS:
        query = QUERIES[kind]
        try:
            prompt = load_prompt(AnnotationConfig(prompt_file=str(path)), kind)
        except UserError as error:
            assert str(path) in str(error) and str(error).isprintable()
        else:
            user = prompt.user(ITEM[: len(query.placeholders)])
            assert all(message.decode() in user for message in ITEM[: len(query.placeholders)])
            json.dumps(prompt.turns(ITEM[: len(query.placeholders)], "Hm.")).encode()


@given(
    raw=st.binary()
    | st.lists(st.sampled_from(["{system}", "{user}", "{", "\\1", "\n"]) | st.text())
    .map("".join)
    .map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_chat_template(path, raw):
    path.write_bytes(raw)
    try:
        template = load_chat_template(str(path))
    except UserError as error:
        assert "chat template" in str(error) and "\n" not in str(error)
    else:
        text = render_chat(template, [("system", "SYS"), ("user", "USE"), ("assistant", "ASS"), ("user", "AGAIN")])
        assert all(word in text for word in ("SYS", "USE", "ASS", "AGAIN"))


ADDRESS_PARTS = (
    "http:// https:// HTTP: // ftp:// h host.example : 80 [::1] @ % \\ / ? # .. 1.2.3.4 \u3002 \uff0f".split()
)
ADDRESS_PARTS += ["xn--", "-", "_", "[", "]", "%25", "65536", "é", "\n", " "]


def same_host(one: str, other: str) -> bool:
    if ":" in one:  # these have several spellings
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    return one == other


@given(st.text() | st.lists(st.sampled_from(ADDRESS_PARTS), max_size=6).map("".join))
def test_any_address(address):
    """A URL that is taken means the same host to those who check it and to those who connect."""
    try:
        url = server_url(address)
    except UserError as error:
        assert str(error).isprintable() and ("@" not in address or address not in str(error))
    else:
        parts, read = urllib.parse.urlsplit(url), yarl.URL(url)
        assert parts.scheme == read.scheme and parts.scheme in ("http", "https")
        assert same_host(parts.hostname or "", read.raw_host or "") and not read.user and not read.query


@given(
    TEXT
    | st.lists(st.sampled_from(["<message>\n", "<first>\n", "<second>\n", "\n</", "\\x3c", "You kill"]) | TEXT).map(
        "".join
    )
)
def test_any_prompt_for_the_judge(prompt):
    with contextlib.suppress(ValueError):  # a kind that NetHack's rules don't judge
        verdict = judge_prompt(prompt)
        assert verdict.label in (0, 1, 2) and verdict.item
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        read_prompts({"prompt": prompt, "messages": [{"content": prompt}]}, chat=True)


PATIENT = dataclasses.replace(CONFIG, llm_timeout_secs=9.0)  # no fault here is one of time: a busy machine adds none
QUICK_FAULTS = [
    fault for name, fault in FAULTS if name not in ("timed_out", "too_slow", "unreadable", "empty_text", "bad_http")
]


@settings(max_examples=max(10, settings().max_examples // 10))
@given(faults=st.lists(st.sampled_from([*QUICK_FAULTS, None]), max_size=12))
def test_any_sequence_of_faults(tmp_path_factory, faults):
    """Once they are over each message has its label, from one answer."""
    script_of = dict(enumerate(faults))
    good: list[bytes] = []

    def script(request):
        fault = script_of.get(request.number)
        if fault and len(request.messages) > 1:
            return fault(request)
        good.extend(request.messages)
        return choices(good_choices(request))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pacing, "MIN_BACKOFF_SECS", 0.001)
        patch.setattr(pacing, "MAX_BACKOFF_SECS", 0.005)
        patch.setattr(pacing, "MAX_RETRY_AFTER_SECS", 0.005)
        patch.setattr(LabelStore, "commit_delay_secs", 0.005)
        store = LabelStore(str(tmp_path_factory.mktemp("labels") / "labels.sqlite"))
        outcome = run(script, store, 24, PATIENT, wait_secs=60.0)
        store.close()
    assert outcome.messages == all_messages(24) == sorted(good) and outcome.stats["put_aside"] == 0
    assert all(label_of(annotation) == int(annotation.item[0][8:]) % 2 for annotation in outcome.annotations)
