"""The client against llama.cpp's server: lists, grammars, probabilities."""

import asyncio
import json
import math
import urllib.request

import pytest

from oni_jax.annotation.client import Client
from oni_jax.annotation.prompts import load_chat_template, render_chat
from oni_jax.settings.annotation import AnnotationConfig
from tests.servers.tiny_model import TOKENS, made_up_messages
from tests.support.asking import label_of, load_prompt, probability_of

pytestmark = pytest.mark.servers

ITEMS = [(message,) for message in made_up_messages(20)]
PAIRS = [(*item, b"It's a wall.") for item in ITEMS]


def settings_of(server, **settings):
    return AnnotationConfig(llm_server_addr=server.address, **{**server.settings, "llm_api": "completions", **settings})  # type: ignore


def ask(config, *requests, kind="classification", pause_secs=0.0):
    """The replies to each of the requests, one after another, and what the client put right."""

    async def body():
        async with Client(config, load_prompt(config, kind)) as client:
            replies = []
            for items in requests:
                replies.append(await client.ask(items))
                await asyncio.sleep(pause_secs)
            return replies, client.events

    return asyncio.run(body())


def probability_of_helpful(server, config, item):
    """P(FOO), given FOO or BAR, from the log-probabilities of all tokens at llama.cpp's endpoint."""
    prompt = render_chat(load_chat_template(config.llm_chat_template), load_prompt(config).turns(item))
    body = json.dumps({"prompt": prompt, "n_predict": 1, "n_probs": len(TOKENS)}).encode()
    with urllib.request.urlopen(f"http://{server.address}/completion", body, timeout=30.0) as response:
        (place,) = json.load(response)["completion_probabilities"]
    probabilities = {entry["token"]: math.exp(entry["logprob"]) for entry in place["top_logprobs"]}
    helpful, unhelpful = (sum(probabilities[token] for token in tokens) for tokens in (("FOO", "F"), ("BAR", "B")))
    return helpful / (helpful + unhelpful)


def test_a_list_is_answered_as_single_prompts_are(llama_server):
    config = settings_of(llama_server, llm_temperature=1.0)
    (together, *alone), events = ask(config, ITEMS, *([item] for item in ITEMS))
    probabilities = [probability_of(reply) for reply in together]
    assert probabilities == pytest.approx([probability_of(reply) for (reply,) in alone], abs=1e-2)
    assert len({round(probability, 2) for probability in probabilities}) > 5  # so that the order shows
    assert not events


def test_probabilities_are_the_models(llama_server):
    config = settings_of(llama_server, llm_temperature=1.0)
    (replies,), _ = ask(config, ITEMS)
    for item, reply in zip(ITEMS, replies, strict=True):
        expected = probability_of_helpful(llama_server, config, item)
        # The server's top_p takes the other label away from one of more than 95 %.
        assert probability_of(reply) == pytest.approx(expected, abs=0.01 if 0.06 < expected < 0.94 else 0.06)
        assert reply.text in ("FOO", "BAR")


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_grammar_makes_the_model_choose(llama_server, api):
    """The model says FOO or BAR by itself: a preference is something that it has to be brought to."""
    requests = [PAIRS] if api == "completions" else [[pair] for pair in PAIRS[:5]]
    for constraint, readable in (("none", False), ("llamacpp", True)):
        config = settings_of(llama_server, llm_api=api, llm_temperature=1.0, llm_constraint=constraint)
        replies, events = ask(config, *requests, kind="ranking")
        found = [reply for answer in replies for reply in answer]
        assert all((reply.answer is not None) == readable for reply in found) and not events
    assert all(0.0 < probability_of(reply) <= 1.0 for reply in found)
    assert len({round(probability_of(reply), 3) for reply in found}) > 1


def test_a_connection_that_the_server_has_closed(llama_server):
    replies, _ = ask(settings_of(llama_server), ITEMS[:3], ITEMS[3:6], pause_secs=6.0)
    assert all(label_of(reply) in (0, 1) for answer in replies for reply in answer)
