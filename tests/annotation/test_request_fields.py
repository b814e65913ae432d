"""Fields that a server refuses are left out, a user's are sent, and findings about a server are said once."""

import dataclasses
import json

import pytest
from aiohttp import web

from launch import flags
from oni_jax.annotation import pacing
from oni_jax.annotation.client import CONSTRAINTS, Client
from oni_jax.annotation.failures import read_refusal
from oni_jax.annotation.health import check_server
from oni_jax.annotation.request_fields import Form
from oni_jax.annotation.watch import MAX_REASONED_IN_ROW
from oni_jax.host.reporting import report
from oni_jax.settings.annotation import AnnotationConfig, check_annotation
from oni_jax.settings.config import Config, config_to_json
from oni_jax.settings.fields import UserError
from tests.annotation.fake_server import choices, refusal, texts
from tests.annotation.test_client import LABELS, LISTS, MESSAGES, ask
from tests.annotation.test_labeller import CONFIG, quick_pauses, run, store
from tests.support.asking import label_of, load_prompt

__all__ = ["quick_pauses", "store"]  # fixtures
CHAT = AnnotationConfig(llm_model="m")
CHAT_LABELS = dataclasses.replace(CHAT, llm_answer="label")


def good(request):
    content = "<label>FOO</label>"
    return choices([{"index": 0, "message": {"content": content}}])


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    "words, field",
    [
        ("invalid temperature: only 1 is allowed for this model", "temperature"),
        ("x" * 5000 + " 'temperature' is deprecated for the model m", "temperature"),
        ("Temperature may not be set. Remove it, and m will answer.", "temperature"),
        ("maxTokens is no parameter of this model m", "max_tokens"),
        ('{"loc": ["body", "stop"], "msg": "Extra inputs", "input": {"temperature": 1, "max_tokens": 3}}', "stop"),
        ("Stop sequences are not supported", "stop"),
        ('{"request": {"temperature": 1, "max_tokens": 3}, "param": "stop"}', "stop"),
        ("{'sent': {'max_tokens': 3}, 'detail': [{'loc': ['body', 'stop', 0]}]}", "stop"),
        (json.dumps(json.dumps({"sent": {"temperature": 1}, "param": "max_tokens"})), "max_tokens"),
        ("Unrecognized request argument supplied: stop", "stop"),
        ("stop: value has too many entries; the maximum is 1", "stop"),
        ("json: cannot unmarshal array into Go struct field ChatCompletionRequest.stop of type string", "stop"),
        ("generationConfig.stopSequences is not supported", "stop"),
        ("This model doesn't support the following parameters: stop, n", "stop"),
        ("Invalid 'max_output_tokens': integer below minimum value", "max_tokens"),
        ("responseLogprobs is not enabled for this model", "logprobs"),
        ("the server does not give log probabilities", "logprobs"),
        ("top_logprobs must be below 6", "top_logprobs"),
    ],
)
def test_field_that_a_refusal_names_is_left_out_however_worded(capsys, status, words, field):
    def script(request):
        return refusal(status, words) if field in request.body else good(request)

    config = CHAT_LABELS if "logprobs" in field else CHAT
    results, server, client = ask(script, config, MESSAGES[:1], times=3)
    assert [label_of(reply) for replies in results for reply in replies] == [1, 1, 1]
    assert [field in request.body for request in server.requests] == [True, False, False, False]
    first, last = server.requests[0].body, server.requests[-1].body
    assert first.keys() - last.keys() == {field} and client.events["fields_dropped"] == 1
    assert capsys.readouterr().out.count(f"without `{field}` from now on") == 1


@pytest.mark.parametrize("words", ["Please stop sending this.", "the engine stopped", "temperatures", "no"])
def test_other_words_name_no_field(words):
    error, server, _ = ask(lambda request: refusal(400, words), CHAT, MESSAGES[:1])
    assert error.name == "http_400" and len(server.requests) == 1


@pytest.mark.parametrize("constraint", ["json_schema", "vllm", "llamacpp", "sglang"])
@pytest.mark.parametrize(
    "words",
    [
        "Structured output is not supported by this model",
        "Invalid schema: it must be an object, got type string",
        "Grammar backend is not initialised",
        "guided decoding is disabled",
    ],
)
def test_constraint_that_a_refusal_names_in_other_words_is_left_out_alone(constraint, words):
    config = dataclasses.replace(CHAT_LABELS, llm_constraint=constraint)
    names = list(CONSTRAINTS[constraint](["FOO", "BAR"]))

    def script(request):
        return refusal(400, words) if names[0] in request.body else good(request)

    replies, server, _ = ask(script, config, MESSAGES[:1])
    assert label_of(replies[0]) == 1 and len(server.requests) == 2
    assert server.requests[0].body.keys() - server.requests[1].body.keys() == {names[0]}


def test_budget_is_renamed_only_where_the_other_name_is_advised():
    """Servers name both where the prompt is too long."""
    form = Form({"max_tokens": 9})
    words = "'max_tokens' or 'max_completion_tokens' is too large: the context has 4096 tokens"
    for text, left in ((words, {}), ("use max_completion_tokens", {"max_completion_tokens": 9})):
        found = form.without_refused(400, f"{text}, not max_tokens", may_guess=True)
        assert found and found.fields == left


def test_server_lacks_the_model_only_if_it_says_so():
    for words in ("bad temperature for model m", "System role is not supported by model m"):
        error, _, _ = ask(lambda request, words=words: refusal(400, words), CHAT, MESSAGES[:1])
        assert error.name == "http_400"
    assert read_refusal(400, {}, "this model is broken", "m").name == "http_400"  # an m, but not the name
    error, _, _ = ask(lambda request: refusal(404, "x" * 999 + " the model `m` does not exist"), CHAT, MESSAGES[:1])
    assert error.name == "wrong_model"


@pytest.mark.parametrize(
    "words",
    [
        "System role not supported",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "Only user and assistant roles are supported!",
        "Developer instruction is not enabled for models/m",
        "Unexpected role 'system'",
        "The first message must be from the user",
        "system_instruction is not supported",
        "Please use a user message instead of system",
        "jinja2.exceptions.TemplateError: it can't be rendered",
        "system: it is not permitted",
        '[{"loc": ["body", "messages", 0, "role"], "msg": "Input should be \'user\' or \'assistant\'"}]',
    ],
)
@pytest.mark.parametrize("status", [400, 500])
def test_system_text_moves_into_the_user_turn(capsys, words, status):
    def script(request):
        turns = request.body["messages"]
        return refusal(status, words) if turns[0]["role"] == "system" else good(request)

    results, server, _ = ask(script, CHAT, MESSAGES[:1], times=2)
    assert [label_of(reply) for replies in results for reply in replies] == [1, 1] and len(server.requests) == 3
    prompt = load_prompt(CHAT)
    (turn,) = server.requests[-1].body["messages"]
    assert turn == {"role": "user", "content": f"{prompt.system}\n\n{prompt.user((MESSAGES[0],))}"}
    assert server.requests[-1].body["temperature"] == CHAT.llm_temperature
    assert capsys.readouterr().out.count("the system's text in the user's turn from now on") == 1


def test_field_that_an_error_of_status_200_names_is_left_out():
    def script(request):
        detail = [{"loc": ["body", "stop"], "msg": "Extra inputs are not permitted"}]
        return web.json_response({"detail": detail}) if "stop" in request.body else good(request)

    replies, server, _ = ask(script, CHAT, MESSAGES[:1])
    assert label_of(replies[0]) == 1 and len(server.requests) == 2


def test_form_never_lacks_more_than_it_must():
    form = Form({"logprobs": True, "top_logprobs": 3, "max_tokens": 9, "enable_thinking": False})
    named = form.without_refused(400, "top_logprobs is unknown", may_guess=True)
    assert named and named.fields.keys() == form.fields.keys() - {"top_logprobs"}
    renamed = form.without_refused(400, "use max_completion_tokens, not max_tokens", may_guess=True)
    assert renamed and renamed.fields["max_completion_tokens"] == 9 and "max_tokens" not in renamed.fields
    assert form.without_refused(429, "logprobs", may_guess=True) is None
    assert form.without_refused(400, "no", may_guess=False) is None


def test_fields_and_headers_of_a_user_are_sent(monkeypatch, capsys):
    monkeypatch.setenv("TOKEN_OF_A_TEST", "s3cret-token")
    headers = {"X-Title": "oni", "authorization": "env:TOKEN_OF_A_TEST"}
    extra = {"enable_thinking": False, "max_tokens": 5, "chat_template_kwargs": {"a": [1, 2]}}
    config = dataclasses.replace(CHAT, llm_extra_body=json.dumps(extra), llm_extra_headers=json.dumps(headers))
    monkeypatch.setenv("OPENAI_API_KEY", "other-key")

    def script(request):
        sent = request.raw.headers
        assert (sent["X-Title"], sent["Authorization"]) == ("oni", "s3cret-token")
        return refusal(400, "s3cret-token is bad") if request.number else good(request)

    results, server, _ = ask(script, config, MESSAGES[:1], times=2)
    assert extra.items() <= server.requests[0].body.items()
    assert "s3cret" not in results[1].detail and "***" in results[1].detail
    assert "s3cret" not in capsys.readouterr().out


def test_settings_keep_no_headers():
    annotation = AnnotationConfig(llm_extra_headers='{"X-Key": "clear"}', llm_extra_body='{"a": 1}')
    text = config_to_json(dataclasses.replace(Config(), annotation=annotation))
    assert "clear" not in text and "llm_extra_body" in text and "clear" not in repr(annotation)


def test_commas_of_an_object_make_no_list():
    words = ["--llm_reward_type=online_cls,count", '--llm_extra_body={"a": 1, "b": 2}']
    config = flags.parse(words)
    assert {term.annotation.llm_extra_body for term in config.terms()} == {'{"a": 1, "b": 2}'}


@pytest.mark.parametrize(
    "name, text",
    [
        ("llm_extra_body", "{"),
        ("llm_extra_body", "[1]"),
        ("llm_extra_body", '{"messages": []}'),
        ("llm_extra_body", '{"model": "m"}'),
        ("llm_extra_body", '{"stream": true}'),
        ("llm_extra_headers", "X-Key: clear"),
        ("llm_extra_headers", '{"X Key": "clear"}'),
        ("llm_extra_headers", '{"X-Key": 3}'),
        ("llm_extra_headers", '{"X-Key": "clear\\r\\nX: y"}'),
    ],
)
def test_unusable_object_is_refused(name, text):
    config = AnnotationConfig(**{name: text})
    for check in (
        check_annotation,
        lambda settings: Client(dataclasses.replace(settings, llm_server_addr="h"), load_prompt(settings)),
    ):
        with pytest.raises(UserError, match=f"--{name}: ") as error:
            check(config)
        assert "clear" not in str(error.value) and str(error.value).isprintable()


def test_header_of_a_missing_variable_is_refused(monkeypatch):
    monkeypatch.delenv("TOKEN_OF_A_TEST", raising=False)
    config = AnnotationConfig(llm_server_addr="h", llm_extra_headers='{"X-Key": "env:TOKEN_OF_A_TEST"}')
    with pytest.raises(UserError, match=r"X-Key is to be \$TOKEN_OF_A_TEST, which is not set"):
        check_server(config)


# ---- what the answers say of the server


@pytest.mark.parametrize(
    "config, choice, hint",
    [
        (CHAT_LABELS, {"message": {"content": ""}, "finish_reason": "length"}, "--llm_answer label leaves it too few"),
        (CHAT, {"message": {"content": "<think>hm"}, "finish_reason": "length"}, "raise --llm_max_tokens"),
        (CHAT, {"message": {"reasoning": "<label>FOO</label>"}}, "the whole answer is in `reasoning`"),
        (CHAT, {"message": {"content": "[THINK]FOO"}}, "reasoning does not end"),
    ],
)
def test_model_that_only_reasons_is_asked_no_more(capsys, config, choice, hint):
    results, server, _ = ask(lambda request: choices([choice]), config, MESSAGES[:1], times=MAX_REASONED_IN_ROW)
    assert all(replies[0].answer is None for replies in results[:-1])
    assert results[-1].name == "only_reasoning" and results[-1].server_at_fault and hint in results[-1].detail
    assert capsys.readouterr().out.count(hint) == 1


def test_model_that_only_reasons_costs_no_more_for_each_caption(store, monkeypatch):
    monkeypatch.setattr(pacing, "MAX_RETRY_AFTER_SECS", 0.02)

    def script(request):
        reasoned = {"text": "", "reasoning": "FOO", "finish_reason": "length"}
        return choices([{"index": i, **reasoned} for i in range(len(request.messages))])

    config = dataclasses.replace(CONFIG, llm_max_in_flight=1, llm_batch_size=1)
    outcome = run(script, store, 60, config, lambda stats: stats.get("failures/only_reasoning", 0) > 30)
    assert outcome.stats["state"] == "the model only reasons" and "reasons" in outcome.stats["problem"]
    assert outcome.stats["put_aside"] <= MAX_REASONED_IN_ROW and outcome.stats["backlog"] > 40
    assert len(outcome.asked) < 40


def test_budget_that_reasoning_takes_is_said():
    words = "Could not finish the message because max_tokens or model output limit was reached."
    error, _, _ = ask(lambda request: refusal(400, words), CHAT_LABELS, MESSAGES[:1])
    assert error.name == "only_reasoning" and "use --llm_answer reasoned" in error.detail


LOW = {"tokens": ["FOO"], "token_logprobs": [-9999.0], "top_logprobs": [{"FOO": -9999.0, "BAR": -9999.0}]}


@pytest.mark.parametrize("logprobs", ["absent", None, {}, [], {"content": None}, {"content": []}, LOW])
def test_missing_probabilities_are_said_once(capsys, logprobs):
    beside = {} if logprobs == "absent" else {"logprobs": logprobs}
    script = lambda request: choices([{"index": i, "text": "FOO", **beside} for i in range(3)])  # noqa: E731
    _, _, client = ask(script, LABELS, times=2)
    assert capsys.readouterr().out.count("no log-probabilities") == 1 and client.events["without_logprobs"] == 6


def test_probabilities_that_are_there_are_not_missed(capsys):
    logprobs = {"tokens": ["FOO"], "token_logprobs": [0.0], "top_logprobs": [{"FOO": 0.0, "BAR": -9999.0}]}
    _, _, client = ask(lambda r: choices([{"index": i, "text": "FOO", "logprobs": logprobs} for i in range(3)]), LABELS)
    assert "log-probabilities" not in capsys.readouterr().out and not client.events
    ask(lambda request: texts("FOO", "FOO", "FOO"), LISTS)  # none are asked for
    assert "log-probabilities" not in capsys.readouterr().out


@pytest.mark.parametrize("said, is_ignored", [("Sure! It says", True), ("FOO", False), ('"FOO"', False), ("", False)])
def test_ignored_constraint_is_said_once(capsys, said, is_ignored):
    config = dataclasses.replace(LABELS, llm_constraint="vllm")
    ask(lambda request: texts(said, said, said), config, times=3)
    printed = capsys.readouterr().out
    assert printed.count("--llm_constraint vllm is ignored") == is_ignored
    assert ("--reasoning-parser" in printed) == is_ignored


def test_constraint_that_was_refused_is_not_ignored(capsys):
    config = dataclasses.replace(LABELS, llm_constraint="sglang")

    def script(request):
        return refusal(400, "unknown: regex") if "regex" in request.body else texts("Sure", "Sure", "Sure")

    ask(script, config, times=3)
    printed = capsys.readouterr().out
    assert "is ignored" not in printed and "without `regex`" in printed


def test_needed_probabilities_that_are_missing_end_it():
    client = Client(dataclasses.replace(LABELS, llm_server_addr="h"), load_prompt(LABELS), report, True)
    replies = client._read(b'{"choices": [{"text": "FOO"}]}', 1)
    with pytest.raises(UserError, match="--llm_reward_value probability: the server at h gives no log-probabilities"):
        client._watch.see(replies, (), client.events)
