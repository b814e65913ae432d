"""Recorded answers, prompts and rewards of ELLM's suggestions (arXiv 2302.06692), read and computed by ours.

ONI_PARAPHRASE_MINILM: a folder with paraphrase-MiniLM-L3-v2, the published sentence encoder, in Hugging Face's layout.
"""

import json
import os

import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.annotation.prompts import load_prompt
from oni_jax.annotation.queries.suggestions import dashed, parsed
from oni_jax.annotation.queries.yes_no import yes_probability
from oni_jax.envs.crafter.prerequisites import SAME
from oni_jax.envs.device import goals as device_goals
from oni_jax.envs.registry import env_spec, find_environment
from oni_jax.rewards.ellm.ellm import Matcher
from oni_jax.rewards.embeddings.embeddings import SentenceEncoder
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.worlds import EnvConfig, GoalConfig
from tests.golden import data_file

CRAFTER = EnvConfig(root_env="CrafterTextEnv-v1")


def recorded(name: str):
    return json.loads(data_file(f"ellm_{name}.json").read_text())


def test_answers_are_read_strictly():
    cases = recorded("parsing")
    for case in cases["parse"]:
        if "error" in case:
            with pytest.raises(ValueError):
                dashed(case["reply"])
        else:
            assert dashed(case["reply"]) == case["parsed"]
    assert sum("error" in case for case in cases["parse"]) > 10
    for case in cases["predict"]:
        had = case["achieved"] if case["novelty_bonus"] else ()
        assert sorted({*parsed(case["reply"].encode(), strict=True)} - {*had}) == case["suggestions"]
    assert sum(case["novelty_bonus"] and bool(case["achieved"]) for case in cases["predict"]) > 2


def test_a_goal_is_reached_together_with_those_of_the_same_meaning():
    names = env_spec(CRAFTER).goals
    cases = [(goal, reached) for goal, reached in recorded("parsing")["achieved_after_one_goal"] if goal in names]
    assert len(cases) == 5  # five of six: `attack the cow` is no goal here, so that nothing is paid for it
    for goal, reached in cases:
        taken = np.array(names) == goal
        together = device_goals.same_meaning(names, SAME)
        worth, nothing = jnp.asarray(taken, jnp.float32), jnp.zeros(len(names), bool)
        paid, after = device_goals.pay(worth, jnp.asarray(taken), nothing, together)
        assert float(paid) == 1 and sorted(np.array(names)[np.asarray(after)]) == reached


def test_well_formed_answers_are_read_tolerantly_too():
    for case in recorded("parsing")["parse"]:
        if "error" not in case and "-" not in case["reply"].replace("\n- ", "")[2:]:
            words = [" ".join(goal.split()) for goal in case["parsed"]]
            assert parsed(case["reply"].encode(), strict=False) == list(dict.fromkeys(words)), case


def test_a_prompt_says_of_a_state_what_was_recorded():
    prompt = load_prompt(AnnotationConfig(), find_environment(CRAFTER).language, "suggestions")
    texts = set()
    states = [case for case in recorded("prompts")["cases"] if "inv" in case["state"]]  # one was a call of a part
    for case in states:
        state = case["state"]
        caption = " ".join(part for part in (state["obs"], state["inv"], state["status"]) if part)
        item = prompt.rewrite(caption.encode())
        text = case["prompt_after_prefix"].removesuffix(" What do you do?\n")
        assert prompt.kind.render(item.decode()) == text
        assert prompt.user((item,)).endswith(f"<state>\n{text}\n</state>")
        texts.add((item, text))
    assert len({item for item, _ in texts}) == len({text for _, text in texts}) > 5


def embed_words(texts) -> np.ndarray:
    """Stands for any encoder: equal texts have the cosine 1, others less than 0.3."""
    rows = [np.random.default_rng(list(text.encode())).normal(size=384) for text in texts]
    return np.stack([row / np.linalg.norm(row) for row in rows]).astype(np.float32)


def recorded_embeddings():
    arrays = np.load(data_file("ellm_text_embeddings.npz"))
    vectors = dict(zip(arrays["texts"].tolist(), arrays["vectors"].astype(np.float32)))
    return lambda texts: np.stack([vectors[text] / np.linalg.norm(vectors[text]) for text in texts])


@pytest.fixture
def sentence_encoder():
    pytest.importorskip("tokenizers", reason="the extra [sentences] is not installed")
    folder = os.environ.get("ONI_PARAPHRASE_MINILM") or pytest.skip("ONI_PARAPHRASE_MINILM is not set")
    return SentenceEncoder(folder)


def test_the_sentence_encoder_s_vectors(sentence_encoder):
    arrays = np.load(data_file("ellm_text_embeddings.npz"))
    recorded_vectors = recorded_embeddings()(arrays["texts"].tolist())
    np.testing.assert_allclose(sentence_encoder(arrays["texts"].tolist()), recorded_vectors, atol=1e-3)


@pytest.mark.parametrize("encoder", ["hash", "minilm", "minilm again"])
def test_actions_are_worth_their_largest_cosine_with_a_suggestion(encoder, request):
    embed = embed_words if encoder == "hash" else recorded_embeddings()
    if encoder == "minilm again":
        encoder, embed = "minilm", request.getfixturevalue("sentence_encoder")
    num_paid = 0
    for case in recorded("text_reward"):
        if case["encoder"] != encoder or case["threshold"] == 1:  # rounding decides there
            continue
        matcher = Matcher([case["action"]], GoalConfig(threshold=case["threshold"]), embed)
        worth, _ = matcher.of_words(case["suggestions"])
        assert worth == pytest.approx(case["reward"], abs=2e-3), case
        num_paid += worth > 0
        if encoder == "hash":  # equal words, or nothing
            assert Matcher([case["action"]], GoalConfig()).of_words(case["suggestions"])[0] == round(float(worth))
    assert num_paid > 5


def test_probability_of_yes():
    cases = [case for case in recorded("yes_no")["cases"] if "Yes" not in case["top_logprobs"]]  # it is one here
    assert len(cases) > 10
    for case in cases:
        probability = yes_probability(case["top_logprobs"])
        assert probability == pytest.approx(case["p_yes"], rel=1e-6, abs=1e-30), case
        if case["p_yes"] != 0.5:
            assert (probability > case["threshold"]) == case["good"]
