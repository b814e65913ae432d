"""Yes or no: read from the words, or from the log-probabilities of either endpoint."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni_jax.annotation.queries.choices import decode_label
from oni_jax.annotation.queries.registry import QUERIES

KIND = QUERIES["yes_no"]
CHAT = {"content": [{"token": "Yes", "logprob": -0.7, "top_logprobs": [{"token": "No", "logprob": -1.7}]}]}
OLDER = {"tokens": [" Yes"], "token_logprobs": [-0.7], "top_logprobs": [{" Yes": -0.7, " No": -1.7, " Maybe": -2}]}
SURE = 1 / (1 + math.exp(-1))


@pytest.mark.parametrize(
    "text, logprobs, label, probability",
    [
        ("Yes", None, 1, 1.0),
        (" no.", None, 0, 0.0),
        ("Yes, of course", None, 1, 1.0),
        ("Yes", CHAT, 1, SURE),
        (" Yes", OLDER, 1, SURE),
        ("No", {"top_logprobs": [{" No": -0.1}]}, 0, 0.0),
        ("Maybe", OLDER, 1, SURE),
        ("No", {"content": "nonsense"}, 0, 0.0),
        ("No", {"top_logprobs": [{"No": float("nan")}]}, 0, 0.0),
    ],
)
def test_an_answer(text, logprobs, label, probability):
    kept = KIND.read(text, logprobs, "")
    assert kept is not None and KIND.is_answer(kept)
    assert decode_label(kept) == (label, pytest.approx(probability, abs=1e-9))


@pytest.mark.parametrize("text", ["", "Maybe", "I would say yes", "Yesterday", "Nothing"])
def test_no_answer(text):
    assert KIND.read(text, None, "") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.sampled_from(["content", "Yes", " No"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["content", "top_logprobs", "token", "logprob", "Yes", " No"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.text(max_size=9), JSON)
def test_nothing_that_a_server_sends_raises(text, logprobs):
    kept = KIND.read(text, logprobs, "")
    assert kept is None or KIND.is_answer(kept)
