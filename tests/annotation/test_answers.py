import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni_jax.annotation.answers import LABEL_WORDS, read_choice, read_label
from oni_jax.annotation.probabilities import read_probabilities


@pytest.mark.parametrize(
    "text, label",
    [
        ("<knowledge>k</knowledge><analysis>a</analysis><label>FOO</label>", 1),
        ("<label>BAR</label>", 0),
        ("this is not FOO ... <label>BAR</label>", 0),
        ("The message says <label>FOO</label>, a trick. <label>BAR</label>", 0),
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


def chat(*places):
    """Each place: the token, then its list of (token, logprob)."""
    entries = [
        {"token": token, "logprob": dict(tops).get(token, -1.0), "bytes": None}
        | {"top_logprobs": [{"token": t, "logprob": p} for t, p in tops]}
        for token, tops in places
    ]
    return {"content": entries}


def legacy(tokens, own, tops):
    return {"tokens": tokens, "token_logprobs": own, "top_logprobs": tops, "text_offset": [0]}


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
        (None, None),
        ({}, None),
        ({"content": None, "tokens": None}, None),
        (legacy(["hm"], [-1.0], [{"hm": -1.0}]), None),
        (legacy(["FOO"], ["high"], [None]), None),
    ],
)
def test_probability(logprobs, probability):
    found = read_probabilities(logprobs, LABEL_WORDS["classification"])
    assert (found and found[1]) == (None if probability is None else pytest.approx(probability, abs=1e-6))


def test_choices_of_both_endpoints():
    assert read_choice({"text": "BAR"}) == ("BAR", 0, 0.0)
    assert read_choice({"message": {"content": "FOO"}}) == ("FOO", 1, 1.0)
    assert read_choice({"message": {"content": [{"type": "text", "text": "FOO"}]}}).label == 1
    assert read_choice({"message": {"content": None}}) == ("", None, 0.0)
    logprobs = legacy(["FOO"], [LOG(0.8)], [{"BAR": LOG(0.2)}])
    assert read_choice({"text": "FOO", "logprobs": logprobs}).probability == pytest.approx(0.8)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["FOO", "B"])
KEYS = st.sampled_from(
    ["text", "message", "content", "logprobs", "tokens", "token_logprobs", "top_logprobs", "top_probs", "prob", "token"]
)
NESTED = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(KEYS, NESTED, max_size=4))
def test_never_raises(choice):
    reply = read_choice(choice)
    assert reply.label in (0, 1, None) and 0.0 <= reply.probability <= 1.0
    read_choice({"text": "FOO", "logprobs": choice})


@given(st.text() | st.text(alphabet="<label>/FOBARnot' "))
def test_any_text(text):
    assert read_label(text) in (0, 1, None)


def test_huge_numbers():
    logprobs = json.loads('{"content": [{"token": "FOO", "logprob": -1%s, "top_logprobs": []}]}' % ("0" * 400))
    assert read_choice({"text": "FOO", "logprobs": logprobs}).label == 1
