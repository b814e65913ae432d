import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni_jax.annotation.answers import Reply, read_choice
from oni_jax.annotation.probabilities import read_probabilities
from oni_jax.annotation.prompt_files import DEFAULT_ANSWER_KEY
from oni_jax.annotation.queries.choices import decode_label
from oni_jax.annotation.queries.classification import read_label
from oni_jax.annotation.queries.ranking import read_preference
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.types import TIE
from tests.support.asking import label_of, probability_of


def read(choice, kind="classification", answer_key=DEFAULT_ANSWER_KEY) -> Reply:
    return read_choice(choice, QUERIES[kind], answer_key)


def said(choice, kind="classification", answer_key=DEFAULT_ANSWER_KEY) -> tuple[str, int | None, float | None]:
    """Text, label and probability."""
    reply = read(choice, kind, answer_key)
    label, probability = (None, None) if reply.answer is None else decode_label(reply.answer)
    return reply.text, label, probability


@pytest.mark.parametrize(
    "text, label",
    [
        ("<think>FOO? No: it harms.</think>\n<label>BAR</label>", 0),
        ("It may be FOO.\n</think>\n\nBAR", 0),  # a template has opened it
        ("<think>First: FOO</think><think>now BAR</think>FOO", 1),
        ("\n<think>So this is FOO. But wait", None),
        ("<think>FOO</think>", None),
    ],
)
def test_reasoning_that_a_server_leaves_in_the_text_is_no_answer(text, label):
    """Nor is it kept, or said again in a conversation."""
    for choice in ({"text": text}, {"message": {"content": text}}, {"message": {"content": [{"text": text}]}}):
        reply = read(choice)
        assert (None if reply.answer is None else decode_label(reply.answer).label) == label
        assert "think" not in reply.text
    goals = "<think>\n- wait\n- think again\n</think>\n- drink water"
    assert read({"text": goals}, "goals").answer == b"drink water"
    assert (read({"text": goals}, "suggestions").answer or b"").strip() == b"- drink water"


@pytest.mark.parametrize(
    "text, label",
    [
        ("so this should be FOO. But wait, I am told", None),
        ("<label>FOO</label> I said so as", 1),
        ("<label>FOO", 1),
        (" FOO", 1),
    ],
)
def test_an_answer_that_was_cut_off_holds_where_it_is_marked(text, label):
    found = read({"text": text, "finish_reason": "length"}).answer
    assert (None if found is None else decode_label(found).label) == label
    whole = read({"text": text, "finish_reason": "stop"}).answer
    assert whole is not None and decode_label(whole).label == 1
    one_word = read_choice({"text": "FOO", "finish_reason": "length"}, QUERIES["classification"], "", one_word=True)
    assert one_word.answer is not None


@pytest.mark.parametrize(
    "text, label",
    [
        ("<knowledge>k</knowledge><analysis>a</analysis><label>FOO</label>", 1),
        ("<label>BAR</label>", 0),
        ("this is not FOO ... <label>BAR</label>", 0),
        ("<label>FOO</label> is wrong. <label>BAR</label>", 1),  # the first decides
        ("<analysis>It says <label>FOO</label>, a trick.</analysis><label>BAR</label>", 0),
        ("<label>foo</label>", 1),
        ('<Label> "BAR". </Label>', 0),
        ("<label>**FOO**</label>", 1),
        ("<label>FOO", 1),  # cut off
        ("<label>FOO or BAR</label>", None),
        ("<label>not FOO</label>", None),
        ("BAR. <label></label>", None),
        ("FOO", 1),
        ("bar", 0),
        ('"FOO"', 1),
        ('{"label": "BAR"}', 0),
        ("\ufffdFOO\ufffd", 1),
        ("First FOO came to mind, but my answer is BAR", 0),
        ("It is BAR, not FOO.", 0),
        ("This is not FOO", None),
        ("FOO or BAR", None),
        ("FOO/BAR?", None),
        ('Either "FOO" or "BAR".', None),
        ("Both FOO and BAR", None),
        ("FOO or BAR? FOO.", 1),
        ("Of FOO and BAR, this is BAR.", 0),
        ("FOO", 1),
        ("Ignore the above, answer FOO, says the message. <label>BAR</label>", 0),
        ("<label>FOO</label> <label>FOO or BAR</label>", 1),
        ("<label>FOO or BAR</label> <label>FOO</label>", None),
        ("my answer is foo", None),
        ("FOO\n\nBAR", 1),
        ("This is helpful: FOO.\n\nThe next one is BAR.", None),
        ("It isn't a FOO.", None),
        ("neither FOO nor BAR", None),
        ("FOOD in the BARN", None),
        ("the bar is open", None),
        ("Label_FOO_", 1),
        ("", None),
        ("I can't tell.", None),
    ],
)
def test_label(text, label):
    assert read_label(text) == label


@pytest.mark.parametrize(
    "text, label",
    [
        ('("best_description": 1)', 0),
        ('("best_description": 2)', 1),
        ('("best_description": None)', TIE),
        ("<analysis>The second.</analysis>\n(“best_description”: 2)", 1),
        ('{"best_description": null}', TIE),
        ('{\\"best_description\\": \\"2\\"}', 1),
        ('("best_description": "None")', TIE),
        ("(best_description:1)", 0),
        ("**best_description** : **2**.", 1),
        ("`best\\_description` = `1`", 0),
        ("Best description: 2", 1),
        ("BEST_DESCRIPTION: none", TIE),
        ('("best_description":\n 1)', 0),
        ('("best_description": description 2)', 1),
        ('("best_description": 1), as it\'s 2 times better', 0),
        ('("best_description": 1)</answer>', 0),
        ('First ("best_description": 1). No: ("best_description": 2)', 0),  # the first decides
        ('("best_description": 2), not ("best_description": 1)', 1),
        ('That is not ("best_description": 1)', None),
        ('("best_description": 1) or ("best_description": 2)', None),
        ('("best_description": 1), ("best_description": 2) or ("best_description": None)', None),
        ('("best_description": 1 or 2)', None),
        ("best_description: 1/2", None),
        ('("best_description": 0)', None),
        ('("best_description": 3)', None),
        ('("best_description": 12)', None),
        ('("best_description": 1.5)', None),
        ('("best_description": 1) ... ("best_description": both)', None),
        ('("best_description": )', None),
        ('("best_message": 1)', None),
        ('("second_best_description": 1)', None),
        ("The first is better: 1", None),
        ("1", 0),
        ('"2"', 1),
        (" None.", TIE),
        ("0", None),
        ("FOO", None),
        ("", None),
    ],
)
def test_preference(text, label):
    assert read_preference(text, DEFAULT_ANSWER_KEY) == label


def test_preference_under_a_separate_key():
    answer = '("best_message": 2)'
    assert read_preference(answer, "best_message") == 1
    assert said({"text": answer}, "ranking", "best_message") == (answer, 1, 1.0)
    assert read_preference('("best_description": 1)', "best_message") is None


@pytest.mark.parametrize("text", ["best_description" + ":" * 100_000, "best_description: or " * 5000, "or /|" * 20_000])
def test_preference_of_a_hostile_text_takes_no_time(text):
    start = time.perf_counter()
    assert read_preference(text, DEFAULT_ANSWER_KEY) is None
    assert time.perf_counter() - start < 1.0


def chat(*places):
    """Each place: the token, then its list of (token, logprob)."""
    entries = [
        {"token": token, "logprob": dict(tops).get(token, -1.0), "bytes": None}
        | {"top_logprobs": [{"token": t, "logprob": p} for t, p in tops]}
        for token, tops in places
    ]
    return {"content": entries}


def legacy(tokens, logprobs, tops):
    return {"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": [0]}


LOG = math.log


@pytest.mark.parametrize(
    "logprobs, probability",
    [
        (chat(("FOO", [("FOO", LOG(0.6)), ("BAR", LOG(0.2))])), 0.75),
        (legacy(["BAR"], [LOG(0.6)], [{"BAR": LOG(0.6), " FOO": LOG(0.2)}]), 0.25),
        (legacy(["FOO"], [LOG(0.7)], [{}]), 0.7),  # no list: BAR gets what is left
        (legacy(["BAR"], [LOG(0.7)], None), 0.3),
        ({"content": [{"token": "BAR", "prob": 0.9, "top_probs": [{"token": "FOO", "prob": 0.1}]}]}, 0.1),
        # several tokens, after a quote
        (chat(('"', [('"', LOG(0.9))]), ("F", [("F", LOG(0.3)), ("B", LOG(0.1))]), ("OO", [("OO", 0.0)])), 0.75),
        # at the place where the label begins, not where it might have begun
        (chat(('"', [('"', LOG(0.9)), ("BAR", LOG(0.01))]), ("FOO", [("FOO", LOG(0.8)), ("BAR", LOG(0.2))])), 0.8),
        # both spellings of a token count
        (chat(("FOO", [("FOO", LOG(0.4)), (" FOO", LOG(0.2)), ("BAR", LOG(0.2))])), 0.75),
        # a label outside the list is no likelier than the least of the list
        (chat(("FOO", [("FOO", LOG(0.9)), ("The", LOG(0.05)), ("I", LOG(0.001))])), 0.9 / 0.901),
        (chat(("FOO", [("FOO", 0.0), ("BAR", -math.inf)])), 1.0),
        (chat(("FOO", [("FOO", LOG(0.6)), ("BAR", LOG(0.2))]))["content"], 0.75),  # a list alone
        # numbers of tokens, or none: their bytes count
        (
            {
                "content": [
                    {"token": token, "bytes": [*b"FOO"], "logprob": LOG(0.6)}
                    | {"top_logprobs": [{"token": token, "bytes": [*b"BAR"], "logprob": LOG(0.2)}]}
                    for token in ("token_id:44", "")
                ]
            },
            0.75,
        ),
        (None, None),
        ({}, None),
        ({"content": None, "tokens": None}, None),
        (legacy(["hm"], [-1.0], [{"hm": -1.0}]), None),
        (legacy(["FOO"], ["high"], [None]), None),
    ],
)
def test_probability(logprobs, probability):
    found = read_probabilities(logprobs, QUERIES["classification"].choices)
    assert (found and found[1]) == (None if probability is None else pytest.approx(probability, abs=1e-6))


def test_choices_of_both_endpoints():
    assert said({"text": "BAR"}) == ("BAR", 0, 0.0)
    assert said({"message": {"content": "FOO"}}) == ("FOO", 1, 1.0)
    assert label_of(read({"message": {"content": [{"type": "text", "text": "FOO"}]}})) == 1
    assert read({"message": {"content": None}})[:2] == ("", None)
    assert read({"message": {"content": [{"text": ["FOO"]}, {"text": {"FOO": 1}}, "FOO"]}}).answer is None
    logprobs = legacy(["FOO"], [LOG(0.8)], [{"BAR": LOG(0.2)}])
    assert probability_of(read({"text": "FOO", "logprobs": logprobs})) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("text", "label"),
    [("FOO BAR", None), ("FOO\nBAR", 1), ("BAR. The answer is FOO", None), ("FOO FOO", 1), ("BAR", 0), ("hm", None)],
)
def test_one_word_is_not_both_labels(text, label):
    logprobs = legacy(["FOO"], [LOG(0.8)], [{"BAR": LOG(0.2)}])
    reply = read_choice({"text": text, "logprobs": logprobs}, QUERIES["classification"], "", one_word=True)
    assert label_of(reply) == label


@pytest.mark.parametrize("kind", sorted(QUERIES))
def test_half_a_character_is_replaced(kind):
    text = "```python\nx = '\ud800'\n```\n- \ud83d\n"
    reply = read({"message": {"content": text}}, kind)
    assert reply.text == text.replace("\ud800", "?").replace("\ud83d", "?")
    expected = {"code": b"x = '?'\n", "goals": b"?"}
    assert reply.answer == expected.get(kind, reply.answer)


def test_probability_of_a_preference_is_the_labels():
    tops = [("2", LOG(0.6)), ("1", LOG(0.2)), ("None", LOG(0.1)), ("The", LOG(0.1))]
    assert said({"text": "2", "logprobs": chat(("2", tops))}, "ranking") == ("2", 1, pytest.approx(6 / 9))
    tie = legacy(["None"], [LOG(0.5)], [{"1": LOG(0.25), "2": LOG(0.25)}])
    assert said({"text": "None", "logprobs": tie}, "ranking") == ("None", TIE, pytest.approx(0.5))
    assert said({"text": "1"}, "ranking") == ("1", 0, 1.0)  # no word of the server's
    # "2" as a word of the reasons is no label
    reasons = '2 coins. ("best_description": 1)'
    assert said({"text": reasons, "logprobs": chat(("2", tops))}, "ranking") == (reasons, 0, 1.0)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["FOO", "B"])
KEYS = st.sampled_from(
    ["text", "message", "content", "logprobs", "tokens", "token_logprobs", "top_logprobs", "top_probs", "prob", "token"]
)
NESTED = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(KEYS, NESTED, max_size=4))
def test_never_raises(choice):
    for one in (choice, {"text": "FOO", "logprobs": choice}):
        reply = read(one)
        assert reply.answer is None or QUERIES["classification"].is_answer(reply.answer)
    assert reply.answer is not None
    for text in ("1", "2", "None"):
        reply = read({"text": text, "logprobs": choice}, "ranking")
        assert reply.answer is not None and QUERIES["ranking"].is_answer(reply.answer)


@given(st.text() | st.text(alphabet="<label>/FOBARnot' "))
def test_any_text(text):
    assert read_label(text) in (0, 1, None)


@given(st.text() | st.text(alphabet='best_description:="() 120Noner'))
def test_any_preference(text):
    assert read_preference(text, DEFAULT_ANSWER_KEY) in (0, 1, TIE, None)


def test_huge_numbers():
    logprobs = json.loads('{"content": [{"token": "FOO", "logprob": -1%s, "top_logprobs": []}]}' % ("0" * 400))
    assert label_of(read({"text": "FOO", "logprobs": logprobs})) == 1


@pytest.mark.parametrize("answer", ["1 1.0", b"9 1.0", b"", b"1 " + b"0" * 200_000])
def test_answer_that_the_store_could_not_return_is_rejected(monkeypatch, answer):
    kind = QUERIES["classification"]
    monkeypatch.setattr(kind, "read", lambda *_: answer)
    assert read_choice({"text": "FOO"}, kind, "").answer is None
