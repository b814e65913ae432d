"""Errors of servers in many forms: inside an answer of status 200, in a choice, an event, and in other words."""

import json
from typing import Any

import pytest
from aiohttp import web

from oni_jax.settings.annotation import AnnotationConfig
from tests.annotation.fake_server import refusal
from tests.annotation.test_client import MESSAGES, ask
from tests.support.asking import label_of

CHAT = AnnotationConfig(llm_timeout_secs=9.0, llm_model="m7")
GOOD = "<label>FOO</label>"
LIMIT = {"code": 429, "message": "slow down"}


def ask_once(answer) -> Any:
    """Returns the only reply to a caption, or the error in its place."""
    found, _, _ = ask(lambda request: answer(), CHAT, MESSAGES[:1])
    return found if isinstance(found, Exception) else found[0]


def answer_of(body):
    return ask_once(lambda: web.json_response(body))


def choice(content="", finish="stop", message=(), **more):
    return {
        "choices": [{"index": 0, "message": {"content": content, **dict(message)}, "finish_reason": finish, **more}]
    }


@pytest.mark.parametrize(
    "body, name",
    [
        ([{"error": LIMIT}], "http_429"),
        ({"errors": [LIMIT]}, "http_429"),
        ({"error": {"error": LIMIT}}, "http_429"),
        ({"error": {"http_code": 429.0}}, "http_429"),
        ({"statusCode": "429", "message": "x"}, "http_429"),
        ({"success": False, "msg": "Rate limit"}, "http_429"),
        ({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, "balance_used_up"),
        ({"status": 503}, "http_503"),
        ({"error": {"message": "upstream error: HTTP 502"}}, "http_502"),
        ({"error": {"message": "Invalid API key"}}, "wrong_key"),
        ({"status": "error", "reason": "boom"}, "error_answer"),
        ({"detail": [{"msg": "boom"}], "choices": None}, "error_answer"),
        (choice(message={"error": LIMIT}), "http_429"),
        (choice(finish="engine_overloaded"), "http_429"),
        (choice(finish="failed"), "error_answer"),
        (choice(finish="cancelled"), "error_answer"),
        (choice("<label>FO", finish=None, native_finish_reason="error"), "error_answer"),
        ({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, "filtered"),
        ({"choices": [], "prompt_filter_results": [{"results": {"violence": {"filtered": True}}}]}, "filtered"),
        ({"error": {"code": 400, "message": "Prompt was blocked due to SAFETY"}}, "filtered"),
    ],
)
def test_error_in_an_answer_is_the_status_that_it_names(body, name):
    error = answer_of(body)
    assert getattr(error, "name", error) == name
    assert error.server_at_fault == (name != "filtered")


@pytest.mark.parametrize(
    "body",
    [
        *(choice(finish=finish) for finish in ("content-filter", "RECITATION", "SPII", "refusal", "blocked")),
        choice(finish="stop", native_finish_reason="SAFETY"),
        choice(None, message={"refusal": "I can't help with that."}),
        choice(content_filter_results={"violence": {"filtered": True, "severity": "high"}}),
    ],
)
def test_answer_that_a_filter_removed_is_filtered(body):
    assert answer_of(body).filtered


def test_words_beside_a_good_answer_are_no_error():
    beside = {"code": 0, "message": "success", "error": {}, "errors": [], "base_resp": {"status_code": 0}}
    safe = {"violence": {"filtered": False, "severity": "low"}}
    body = {**choice(GOOD, message={"refusal": None}, error=None, content_filter_results=safe), **beside}
    assert label_of(answer_of({**body, "prompt_filter_results": [safe]})) == 1


@pytest.mark.parametrize("finish", ["length", "max_tokens", "MAX_TOKENS", "max_output_tokens"])
def test_answer_that_ends_at_its_tokens_is_cut_off(finish):
    reply = answer_of(choice("It may be FOO or", finish))
    assert reply.is_cut_off and reply.answer is None
    assert answer_of(choice("", finish)).failure == "only_reasoning"


@pytest.mark.parametrize(
    "text, name",
    [
        ('event: error\ndata: {"code": 429, "message": "x"}\n\n', "http_429"),
        ('event: error\ndata: {"error": {"code": 429}}\n\n', "http_429"),
        ('data: {"code": 429, "message": "x"}\n\n', "http_429"),
        ('data: {"choices": [{"delta": {"content": "<label>FOO"}}]}\n\nevent: error\ndata: lost\n\n', "error_answer"),
    ],
)
def test_error_event_is_an_error(text, name):
    assert ask_once(lambda: web.Response(text=text, content_type="text/event-stream")).name == name


@pytest.mark.parametrize("before", ["\ufeff", ": PROCESSING\n\n: PROCESSING\n\n"])
def test_answer_after_a_mark_or_comments_is_read(before):
    for text in (json.dumps(choice(GOOD)), f"data: {json.dumps(choice(GOOD))}\n\n"):
        reply = ask_once(lambda text=text: web.Response(text=before + text, content_type="text/event-stream"))
        assert label_of(reply) == 1


@pytest.mark.parametrize(
    "status, words, name",
    [
        (400, "Prompt was blocked due to SAFETY", "filtered"),
        (400, "This content may violate our terms of use", "filtered"),
        (400, "系统检测到输入内容可能包含不安全或敏感内容", "filtered"),  # as JSON's escapes
        (403, "violates safety guidelines", "filtered"),
        (500, "Output blocked by content filtering policy", "filtered"),
        (451, "no", "filtered"),
        (403, "Quota exceeded for your account", "quota_used_up"),
        (400, "You have reached your specified API usage limits.", "quota_used_up"),
        (429, "Rate limit reached on tokens per day (TPD)", "quota_used_up"),
        (429, "Rate limit reached on tokens per min (TPM)", "http_429"),
        (403, "This request requires more credits, or fewer max_tokens; you can only afford 20", "balance_used_up"),
        (401, "Insufficient balance", "balance_used_up"),
        (429, "余额不足", "balance_used_up"),
        (400, "Model Not Exist", "wrong_model"),
        (422, "Unknown model m7", "wrong_model"),
        (500, "model m7 not found", "wrong_model"),
        (404, "No endpoints found for m7.", "wrong_model"),
        (404, "DeploymentNotFound", "wrong_model"),
        (400, "API key not valid. Please pass a valid one.", "wrong_key"),
        (500, "could not find a KV slot for the batch", "context_full"),
        (500, "case-sensitive", "http_500"),
        (500, "insensitive", "http_500"),
    ],
)
def test_refusal_has_the_name_of_its_words(status, words, name):
    assert ask_once(lambda: refusal(status, words)).name == name
