"""Yes or no: read from the words, or from the log-probabilities of either endpoint."""

import dataclasses
import math
import pathlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni_jax.annotation.queries.choices import decode_label
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.annotation.queries.yes_no import is_yes
from oni_jax.envs.registry import find_environment
from oni_jax.settings.worlds import EnvConfig
from tests.annotation.fake_server import choices, texts
from tests.annotation.test_faults import truth
from tests.annotation.test_labeller import CONFIG, all_messages, quick_pauses, run, store

__all__ = ["quick_pauses", "store"]  # fixtures

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
        ("Yes", {"content": [{"token": "Yes", "prob": 0.6, "top_probs": [{"token": "No", "prob": 0.2}]}]}, 1, 0.75),
        ("Yes", {"tokens": ["Yes"], "token_logprobs": [-0.1], "top_logprobs": []}, 1, 1.0),
        ("Maybe", OLDER, 1, SURE),
        ("No", {"content": "nonsense"}, 0, 0.0),
        ("No", {"top_logprobs": [{"No": float("nan")}]}, 0, 0.0),
        ("No", {"top_logprobs": [{"No": -(10**400)}]}, 0, 0.0),
    ],
)
def test_an_answer(text, logprobs, label, probability):
    kept = KIND.read(text, logprobs, "")
    assert kept is not None and KIND.is_answer(kept)
    assert decode_label(kept) == (label, pytest.approx(probability, abs=1e-9))


@pytest.mark.parametrize("text", ["", "Maybe", "I would say yes", "Yesterday", "Nothing"])
def test_no_answer(text):
    assert KIND.read(text, None, "") is None


@pytest.mark.parametrize("answer_style", ["label", "reasoned"])
def test_a_question_that_is_asked(store, tmp_path, answer_style):
    """With the prompt file of docs/extending.md; probabilities come where one word is asked for."""
    page = pathlib.Path(__file__).parents[2] / "docs/extending.md"
    (prompt,) = (text for text in re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL) if "yes_no" in text)
    (tmp_path / "users.json").write_text(prompt)
    config = dataclasses.replace(CONFIG, prompt_file=str(tmp_path / "users.json"), llm_answer=answer_style)

    def script(request):
        if "logprobs" not in request.body:
            return texts(*["No, it is not."] * len(request.messages))
        tops = [{" Yes": math.log(0.3), " No": math.log(0.1 + 0.1 * truth(m))} for m in request.messages]
        entries = [{"index": i, "text": " Yes", "logprobs": {"top_logprobs": [top]}} for i, top in enumerate(tops)]
        return choices(entries)

    outcome = run(
        script, store, 6, config, kind=(find_environment(EnvConfig(root_env="Crafter-v1")).language, "yes_no")
    )
    assert sorted(outcome.messages) == all_messages(6)
    for (message,), answer, _ in outcome.annotations:
        assert answer is not None
        probability = 0.3 / (0.4 + 0.1 * truth(message)) if answer_style == "label" else 0.0
        assert decode_label(answer).probability == pytest.approx(probability)
        for threshold in (0.5, 0.65, 0.9):
            assert is_yes(answer, threshold) == (probability > threshold)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.sampled_from(["content", "Yes", " No"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["content", "top_logprobs", "token", "logprob", "Yes", " No"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.text(max_size=9), JSON)
def test_no_text_from_a_server_raises(text, logprobs):
    kept = KIND.read(text, logprobs, "")
    assert kept is None or KIND.is_answer(kept)
