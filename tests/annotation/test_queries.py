"""Kinds of query: what is kept of an answer, what of that a store may hold, and a plugin's kind."""

import asyncio
import dataclasses
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni_jax.annotation.answers import read_choice
from oni_jax.annotation.client import Client
from oni_jax.annotation.judge import EmbeddedJudge, Judge, JudgeOptions
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.queries.choices import decode_label, encode_label
from oni_jax.annotation.queries.registry import QUERIES, register_query
from oni_jax.annotation.service import AnnotationService
from oni_jax.annotation.stored import checked
from oni_jax.envs.base import Language
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from oni_jax.types import FIRST, SECOND, TIE, Annotation, Query
from tests.annotation.fake_server import choices, fake_server, texts
from tests.annotation.rating import PROMPT, Rating
from tests.annotation.test_client import LABELS, LISTS, ask_about
from tests.annotation.test_judge import call
from tests.support.asking import LANGUAGE, judge_prompt, load_prompt, queries, question
from tests.support.labelled import labelled

KINDS = ("classification", "ranking")
KILL, WALL = b"You kill the newt!", b"It's a wall."
ITEMS = {"classification": (KILL,), "ranking": (KILL, WALL)}
NO_ANSWERS = [b"", b" ", b"1", b"1 ", b" 1", b"1 2", b"1 -0.1", b"3 0.5", b"-1 0.5", b"1 nan", b"1 inf", b"1 0.5 1"]
NO_ANSWERS += [b"1  0.5", b"FOO 1.0", b"0.5 1", b"\xff 1", b"9" * 5000 + b" 1", b"1,0.5", b"None None"]


def test_a_taken_name_is_refused():
    before = dict(QUERIES)
    for kind in (*before.values(), type("Own", (Rating,), {"name": "ranking"})()):
        with pytest.raises(UserError, match=f"the query {kind.name} is registered already") as error:
            register_query(kind)
        assert str(error.value).isprintable() and QUERIES == before


@given(st.integers(0, 2), st.floats(0, 1))
def test_labels_are_kept_exactly(label, probability):
    kept = encode_label(label, probability)
    assert decode_label(kept) == (label, probability)
    assert QUERIES["ranking"].is_answer(kept) and QUERIES["classification"].is_answer(kept) == (label < 2)


def test_labels_are_kept_as_those_in_old_stores_are():
    """Paid for, and found again."""
    assert (encode_label(1, 0.97), encode_label(0, 0)) == (b"1 0.97", b"0 0.0")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", NO_ANSWERS)
def test_invalid_bytes_are_no_answer(kind, kept):
    assert not QUERIES[kind].is_answer(kept)


@pytest.mark.parametrize("kind", KINDS)
@given(kept=st.binary() | st.text("0123 .e-+_naif").map(str.encode))
def test_any_bytes_of_a_store(kind, kept):
    """Bytes that pass as an answer can be shown, and counted."""
    query = QUERIES[kind]
    if query.is_answer(kept):
        label, probability = decode_label(kept)
        assert 0 <= label < len(query.choices) and 0 <= probability <= 1 and query.describe(kept)
        rows = query.tally([Annotation(ITEMS[kind], kept)])
        assert set(rows) == set(ITEMS[kind]) and all(len(row) == len(query.columns) for row in rows.values())


def test_answers_in_words():
    said = {
        kind: [QUERIES[kind].describe(encode_label(i, 0.5)) for i in range(len(QUERIES[kind].choices))]
        for kind in KINDS
    }
    assert said == {"classification": ["not helpful", "helpful"], "ranking": ["first", "second", "tie"]}


def test_tallies():
    one, other, third = b"one", b"other", b"third"
    labels = [labelled((one,), 1), labelled((other,), 0, 0.2), labelled((third,), None)]
    assert QUERIES["classification"].tally(labels) == {one: (1,), other: (0,)}
    pairs = [labelled((one, other), FIRST), labelled((other, one), FIRST), labelled((one, third), SECOND)]
    pairs += [labelled((one, other), TIE), labelled((b"x", b"y"), None)]
    assert QUERIES["ranking"].columns == ("better", "worse", "tie")
    assert QUERIES["ranking"].tally(pairs) == {one: (1, 2, 1), other: (1, 1, 1), third: (1, 0, 0)}


# ---- rows of a label store


@pytest.mark.parametrize("kind", KINDS)
def test_answers_that_are_checked_pass_as_they_are(kind):
    rows = [labelled(ITEMS[kind], label, 0.5) for label in range(len(QUERIES[kind].choices))]
    assert checked(QUERIES[kind], rows) is rows and checked(QUERIES[kind], []) == []


@pytest.mark.parametrize(
    "kind, row",
    [
        *[(kind, Annotation(ITEMS[kind], kept)) for kind in KINDS for kept in (b"", b"1", b"9 0.5", b"riddle \x1b[2J")],
        *[(kind, Annotation(ITEMS[kind], None)) for kind in KINDS],
        ("classification", labelled(ITEMS["ranking"], 1)),  # another size
        ("ranking", labelled(ITEMS["classification"], 1)),
        ("ranking", labelled((KILL, WALL, KILL), 1)),
        ("classification", labelled((KILL,), 2)),  # a label of ranking's
        ("classification", Annotation((b"\x1b[2J" * 1000,), b"?")),
    ],
)
def test_a_row_that_is_no_answer_is_refused(kind, row):
    good = [labelled(ITEMS[kind], 1)]
    with pytest.raises(UserError, match=f"label store: a row is no {kind} ") as error:
        checked(QUERIES[kind], [*good, row, *good])
    text = str(error.value)
    assert text.isprintable() and len(text) < 200 and "name another" in text


# ---- a plugin's kind, with answers in free text


@pytest.fixture
def rating(tmp_path):
    """Settings of a prompt of that kind."""
    path = tmp_path / "prompt.json"
    path.write_text(json.dumps(PROMPT))
    register_query(Rating())
    yield {"prompt_file": str(path)}
    del QUERIES["rating"]


def test_a_prompt_of_a_plugin_s_kind(rating):
    prompt = load_prompt(AnnotationConfig(**rating), "rating")
    assert prompt.kind is QUERIES["rating"]
    assert prompt.user((KILL,)) == "Win.\nReason, then say Rating: N\n<rated>\n> You kill the newt!\n</rated>"
    with pytest.raises(UserError, match="`kind` is rating, and a prompt for classification is needed"):
        load_prompt(AnnotationConfig(**rating))


def test_kind_is_unknown_without_its_plugin(rating):
    kind = QUERIES.pop("rating")
    with pytest.raises(UserError, match="`kind` must be one of classification, ranking"):
        load_prompt(AnnotationConfig(**rating))
    register_query(kind)


@pytest.mark.parametrize("config", [LISTS, LABELS])
def test_free_text_is_not_restricted(rating, config):
    """Neither to labels nor to their length, whatever the form of answer; no odds are asked for."""
    said = ["Well... Rating: 7", "RATING: 10", "Rating: 11", "FOO"]

    def script(request):
        assert request.messages == [b"> %d" % i for i in range(4)]
        return choices([{"index": i, "text": text, "logprobs": {"tokens": 3}} for i, text in enumerate(said)])

    config = dataclasses.replace(config, **rating, llm_max_tokens=77)
    constraint = {"llm_constraint": "vllm"} if config.llm_answer == "label" else {}
    config = dataclasses.replace(config, **constraint)
    items = [(b"%d" % i,) for i in range(4)]
    replies, server, _ = ask_about(script, config, items, "rating")
    assert [reply[:2] for reply in replies] == [*zip(said, (b"\x07", b"\x0a", None, None))]
    (request,) = server.requests
    assert request.body["max_tokens"] == 77 and not {"logprobs", "structured_outputs"} & set(request.body)


def test_free_text_in_a_chat_and_asked_again(rating):
    config = AnnotationConfig(**rating)

    def script(request):
        return choices([{"index": 0, "message": {"content": "Sorry. Rating: 3"}}])

    (reply,), server, _ = ask_about(script, config, [(KILL,)], "rating", first_answer="Who knows?")
    assert reply[:2] == ("Sorry. Rating: 3", b"\x03")
    assert [turn["role"] for turn in server.requests[0].body["messages"]] == ["system", "user", "assistant", "user"]


def test_a_service_that_asks_it_beside_another_question(rating, tmp_path):
    """A separate process, without the kind, asks one server. Unreadable answers belong to their question."""
    store = LabelStore(str(tmp_path / "labels.sqlite"))
    items = [(b"message %d" % i,) for i in range(12)]
    expected = {Query(item, 0): encode_label(i % 2, i % 2) for i, item in enumerate(items)}
    expected |= {Query(item, 1): bytes([i]) if i <= 10 else None for i, item in enumerate(items)}

    def script(request):
        (rated,) = {b"> " in message for message in request.messages}
        numbers = [int(message.rpartition(b" ")[2]) for message in request.messages]
        return texts(*[f"Rating: {i}" if rated else ("BAR", "FOO")[i % 2] for i in numbers])

    async def body():
        async with fake_server(script) as server:
            config = dataclasses.replace(LISTS, llm_server_addr=server.address, llm_timeout_secs=9.0)
            asked = [question(config), question(dataclasses.replace(config, **rating), "rating")]
            for num_asked in (2 * len(items) + 1, 2):  # 11 of 10 is asked twice, by each of the services
                service = AnnotationService(asked, store)
                service.submit([*queries(items, 0), *queries(items, 1)])
                annotations, deadline = [], time.monotonic() + 30
                while (len(annotations) < len(expected) or not service.answers()) and time.monotonic() < deadline:
                    annotations += service.poll()
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(service.close)
                assert {Query(item, number): answer for item, answer, number in annotations} == expected
                assert len(annotations) == len(expected)
                assert service.stats()["labels_asked"] == num_asked and service.stats()["put_aside"] == 1
                said = {(answer.item, answer.said) for answer in service.answers()}
                assert said and said <= {(item, told(item, number)) for item in items for number in (0, 1)}
            assert len([m for messages in server.asked for m in messages]) == 2 * len(items) + 3

    def told(item, number):
        kept, kind = expected[Query(item, number)], asked_kinds[number]
        return "unreadable" if kept is None else kind.describe(kept)

    asked_kinds = (QUERIES["classification"], QUERIES["rating"])
    asyncio.run(body())
    config = AnnotationConfig(**rating)
    kept = checked(QUERIES["rating"], store.all(config.llm_model, load_prompt(config, "rating").digest))
    assert QUERIES["rating"].tally(kept) == {b"message %d" % i: (i,) for i in range(11)}


def test_the_judge_knows_it_by_what_stands_before_the_message(rating):
    prompt = load_prompt(AnnotationConfig(goal_key="gold", **rating), "rating")
    verdict = judge_prompt(prompt.user((b"$ - 13 gold pieces.",)))
    assert (verdict.kind, verdict.item, verdict.word) == (QUERIES["rating"], (b"> $ - 13 gold pieces.",), "9")
    assert prompt.kind.read(verdict.text, None, prompt.answer_key) == b"\x09"
    other = load_prompt(AnnotationConfig()).user((KILL,))
    assert judge_prompt(other).kind is QUERIES["classification"]


def test_the_judges_process_knows_it(rating, tmp_path):
    """An environment has prompts of that kind, among others."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "rating_default.json").write_text(json.dumps(PROMPT))
    log = tmp_path / "log.jsonl"
    judge = EmbeddedJudge(Language(folder, "oni_jax.envs.nethack.judge_rules"), JudgeOptions(log_path=str(log)))
    try:
        prompt = load_prompt(AnnotationConfig(goal_key="gold", **rating), "rating")
        turns = [{"role": role, "content": content} for role, content in prompt.turns((b"$ - 13 gold pieces.",))]
        status, answer = call(judge.address, "/v1/chat/completions", {"messages": turns})
        assert status == 200
        assert read_choice(answer["choices"][0], prompt.kind, prompt.answer_key).answer == b"\x09"
        assert len(log.read_text().splitlines()) == 1
    finally:
        judge.close()


def test_the_judge_logs_it_too(rating, tmp_path):
    judge = Judge(LANGUAGE, JudgeOptions(log_path=str(tmp_path / "log.jsonl")))
    prompt = load_prompt(AnnotationConfig(**rating), "rating").user((KILL,))
    judge._record([prompt], [judge_prompt(prompt)], None)
    judge.close()
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
    assert json.loads(line)["message"] == "> You kill the newt!" and json.loads(line)["fault"] is None


def test_a_client_reads_it_whatever_comes(rating):
    """Nothing of it raises."""
    client = Client(
        dataclasses.replace(LISTS, llm_server_addr="host", **rating), load_prompt(AnnotationConfig(**rating), "rating")
    )
    for body in ({"text": "Rating: 3"}, {"text": 3}, {"message": {"content": ["Rating: 3"]}}, {}, 3):
        (reply,) = client._read(json.dumps({"choices": [body]}).encode(), 1)
        assert reply.answer == (b"\x03" if body == {"text": "Rating: 3"} else None)
