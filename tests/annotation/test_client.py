import asyncio
import dataclasses
from typing import Any

import pytest
from aiohttp import web

from oni_jax.annotation.client import CONSTRAINTS, Client, RequestError
from oni_jax.annotation.health import check_server
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from tests.annotation.fake_server import choices, cut, drip, fake_server, hang, labels, refusal, texts
from tests.support.asking import label_of, load_prompt, probability_of
from tests.support.faults import free_port

LISTS = AnnotationConfig(llm_api="completions", llm_timeout_secs=0.5)
LABELS = dataclasses.replace(LISTS, llm_answer="label")
MESSAGES = [b"You kill the newt!", b"It's a wall.", b"Never mind."]


def ask(script, config=LISTS, messages=MESSAGES, times=1) -> Any:
    """Returns a client's answers from a scripted server; its exception instead of replies where it raises one."""
    return ask_about(script, config, [(message,) for message in messages], times=times)


def ask_about(script, config, items, kind="classification", times=1, first_answer="") -> Any:
    """The same for items, the first of them with an answer that could not be read."""

    async def body():
        async with fake_server(script) as server:
            full = dataclasses.replace(config, llm_server_addr=server.address)
            async with Client(full, load_prompt(full, kind)) as client:
                results = []
                for _ in range(times):
                    try:
                        results.append(await client.ask(items, {items[0]: first_answer}))
                    except RequestError as error:
                        results.append(error)  # type: ignore
                return results if times > 1 else results[0], server, client

    return asyncio.run(body())


def test_a_list_is_ordered_by_index():
    def script(request):
        words = ["FOO", "BAR", "nothing"]
        return choices([{"index": i, "text": words[i]} for i in (2, 0, 1)])

    replies, server, client = ask(script)
    assert [label_of(reply) for reply in replies] == [1, 0, None]
    assert server.asked == [MESSAGES] and client.events["choices_reordered"] == 1


def test_chat_request(monkeypatch):
    monkeypatch.setenv("KEY_OF_A_TEST", "secret")

    def script(request):
        assert request.raw.path == "/v1/chat/completions"
        assert request.raw.headers["Authorization"] == "Bearer secret"
        return choices([{"index": 0, "message": {"role": "assistant", "content": "<label>FOO</label>"}}])

    config = AnnotationConfig(llm_api_key="env:KEY_OF_A_TEST", llm_model="m", llm_temperature=0.3, llm_max_tokens=77)
    replies, server, _ = ask(script, config, MESSAGES[:1])
    assert label_of(replies[0]) == 1
    body = server.requests[0].body
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.3, 77)
    assert [turn["role"] for turn in body["messages"]] == ["system", "user"] and "logprobs" not in body


@pytest.mark.parametrize(
    "script, name",
    [
        (lambda request: refusal(500), "http_500"),
        (lambda request: refusal(503), "http_503"),
        (lambda request: refusal(404), "http_404"),
        (lambda request: refusal(401), "wrong_key"),
        (lambda request: refusal(404, f"The model `{LISTS.llm_model}` does not exist."), "wrong_model"),
        (lambda request: refusal(302, Location="http://127.0.0.1:1/v1/completions"), "redirected"),
        (lambda request: texts("FOO"), "too_few_choices"),
        (lambda request: choices([]), "too_few_choices"),
        (lambda request: choices("FOO"), "too_few_choices"),
        (lambda request: texts(*["FOO"] * 4), "too_many_choices"),
        (lambda request: choices([{"index": 0, "text": "FOO"}] * 3), "bad_indices"),
        (lambda request: choices([{"text": "FOO"}] * 3), "bad_indices"),
        (lambda request: choices([{"index": True}, {"index": 0}, 3]), "bad_indices"),
        (lambda request: web.Response(text='{"choices": ['), "broken_json"),
        (lambda request: web.Response(text="[" * 100_000), "broken_json"),
        (lambda request: web.json_response([1]), "broken_json"),
        (lambda request: web.json_response({}), "broken_json"),
        (lambda request: web.Response(body=b"\xff\xfe\x00"), "broken_json"),
        (lambda request: web.Response(body=b" " * (1 << 23)), "too_large"),
    ],
)
def test_failures_by_name(script, name):
    error, server, _ = ask(script)
    assert isinstance(error, RequestError) and error.name == name
    assert len(server.requests) == 1 and "\n" not in error.detail


def test_too_many_requests_says_when():
    error, _, _ = ask(lambda request: refusal(429, **{"Retry-After": "7"}))
    assert (error.name, error.retry_after_secs, error.server_at_fault) == ("http_429", 7.0, True)


@pytest.mark.parametrize("script, name", [(hang, "timed_out"), (drip, "too_slow"), (cut, "disconnected")])
def test_servers_that_do_not_end(script, name):
    assert ask(script)[0].name == name


def test_nobody_listens():
    config = dataclasses.replace(LISTS, llm_server_addr=f"127.0.0.1:{free_port()}")

    async def body():
        async with Client(config, load_prompt(config)) as client:
            await client.ask([(message,) for message in MESSAGES])

    with pytest.raises(RequestError) as error:
        asyncio.run(body())
    assert error.value.name == "unreachable" and error.value.server_at_fault
    check_server(config)
    with pytest.raises(UserError, match="no LLM server answers") as refused:
        check_server(dataclasses.replace(config, llm_required=True))
    assert "\n" not in str(refused.value)


def test_dead_pooled_connection_is_replaced_once():
    """The second request finds its kept connection closed by the server, as happens after 5 s."""

    def script(request):
        if request.number == 1:
            request.raw.transport.abort()
        return labels(request)

    results, server, client = ask(script, times=2)
    assert [[label_of(reply) for reply in replies] for replies in results] == [[1, 1, 1]] * 2
    assert len(server.requests) == 3 and client.events["stale_connections"] == 1


@pytest.mark.parametrize(
    "constraint, field",
    [
        ("vllm", "structured_outputs"),
        ("sglang", "regex"),
        ("llamacpp", "grammar"),
        ("json_schema", "response_format"),
    ],
)
def test_refused_field_is_dropped_once_and_for_all(constraint, field):
    def script(request):
        return refusal(422, f"unknown field: {field}") if field in request.body else labels(request)

    config = dataclasses.replace(LABELS, llm_constraint=constraint)
    results, server, client = ask(script, config, times=3)
    assert all(label_of(reply) == 1 for replies in results for reply in replies)
    assert [field in request.body for request in server.requests] == [True, False, False, False]
    assert all("logprobs" in request.body for request in server.requests)
    assert client.events["fields_dropped"] == 1


NEW_MODEL = {  # errors of OpenAI's newer models, in this order
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
    "instead.",
    "temperature": "Unsupported value: 'temperature' does not support 0.1 with this model. Only the default (1) value "
    "is supported.",
    "logprobs": "You are not allowed to request logprobs from this model.",
    "top_logprobs": "top_logprobs needs logprobs.",
}


@pytest.mark.parametrize("answer", ["reasoned", "label"])
def test_newer_models_get_the_fields_that_they_take(answer):
    def script(request):
        refused = next((told for name, told in NEW_MODEL.items() if name in request.body), None)
        reply = choices([{"message": {"content": "<label>FOO</label>"}}])
        return refusal(400, refused) if refused else reply

    config = AnnotationConfig(llm_answer=answer, llm_max_tokens=7)
    results, server, client = ask(script, config, MESSAGES[:1], times=2)
    assert [label_of(reply) for replies in results for reply in replies] == [1, 1]
    first, last = server.requests[0].body, server.requests[-1].body
    assert first["max_tokens"] == 7 and "max_completion_tokens" not in first
    assert set(last) == {"model", "messages", "max_completion_tokens", "stop"} and last["max_completion_tokens"] == 7
    assert len(server.requests) == (4 if answer == "reasoned" else 6)
    assert client.events["fields_dropped"] == (1 if answer == "reasoned" else 3)


def test_newer_models_answer_conversations():
    def script(request):
        if "max_tokens" in request.body:
            return refusal(400, NEW_MODEL["max_tokens"])
        return choices([{"message": {"content": "Hm."}}])

    async def body():
        async with fake_server(script) as server:
            config = AnnotationConfig(llm_server_addr=server.address)
            prompt = load_prompt(config)
            async with Client(config, prompt) as client:
                turns = prompt.turns((b"Hm.",))
                return [(await client.complete(turns)).text for _ in range(2)], len(server.requests)

    assert asyncio.run(body()) == (["Hm.", "Hm."], 3)


@pytest.mark.parametrize(
    "told, dropped",
    [("'max_tokens' or 'max_completion_tokens' is too large: 400", "max_tokens"), ("bad temperature", "temperature")],
)
def test_field_that_a_refusal_names_is_left_out_only_if_that_helps(told, dropped):
    error, server, _ = ask(lambda request: refusal(400, told), times=2)
    assert [found.name for found in error] == ["http_400"] * 2
    assert dropped not in server.requests[-1].body
    assert sum(dropped in request.body for request in server.requests) == 2  # each time tried at first


def test_refusal_that_names_nothing_drops_no_length_or_temperature():
    error, server, _ = ask(lambda request: refusal(400, "no"))
    assert error.name == "http_400" and len(server.requests) == 1
    error, server, _ = ask(lambda request: refusal(400, "no"), LABELS)
    assert error.name == "http_400" and {"max_tokens", "temperature"} <= set(server.requests[-1].body)


def test_unnamed_refusal_drops_all_optional_fields_only_if_that_helps():
    config = dataclasses.replace(LABELS, llm_constraint="vllm")
    results, server, _ = ask(lambda r: refusal(400) if "logprobs" in r.body else labels(r), config, times=2)
    assert len(server.requests) == 3 and "structured_outputs" not in server.requests[2].body
    results, server, _ = ask(lambda r: refusal(400) if r.number < 2 else labels(r), config, times=2)
    assert results[0].name == "http_400" and label_of(results[1][0]) == 1
    assert "structured_outputs" in server.requests[2].body


def test_fields_that_worked_are_kept():
    """A later refusal leaves one out of that request alone."""
    config = dataclasses.replace(LABELS, llm_constraint="vllm")
    results, server, _ = ask(lambda r: refusal(400, "logprobs") if r.number == 1 else labels(r), config, times=3)
    assert all(label_of(reply) == 1 for replies in results for reply in replies)
    assert ["logprobs" in request.body for request in server.requests] == [True, True, False, True]
    assert all("structured_outputs" in request.body for request in server.requests)


def test_label_answers_are_short_and_have_probabilities():
    def script(request):
        logprobs = {"tokens": ["FOO"], "token_logprobs": [-0.7], "top_logprobs": [{"FOO": -0.7, "BAR": -0.7}]}
        return choices([{"index": i, "text": "FOO", "logprobs": logprobs} for i in range(3)])

    replies, server, _ = ask(script, LABELS)
    assert [(label_of(reply), probability_of(reply)) for reply in replies] == [(1, 0.5)] * 3
    assert server.requests[0].body["max_tokens"] < 10


PAIRS = [(b"You kill the newt!", b"It's a wall."), (b"Never mind.", b"You kill the newt!"), (b"", b"Never mind.")]


def test_pairs_in_a_list():
    def script(request):
        assert [prompt.index("newt") < prompt.index("wall") for prompt in request.body["prompt"][:1]] == [True]
        words = ('("best_description": 1)', '<x> ("best_description": 2)', '("best_description": None)')
        return texts(*words)

    replies, _, _ = ask_about(script, LISTS, PAIRS, "ranking")
    assert [(label_of(reply), probability_of(reply)) for reply in replies] == [(0, 1.0), (1, 1.0), (2, 1.0)]


def test_key_of_the_reworded_prompt_is_read():
    """As published its every answer is a tie."""
    answer = '("best_message": 2)'
    for version, label in (("reworded", 1), ("default", None)):
        config = dataclasses.replace(LISTS, prompt_version=version)
        replies, server, _ = ask_about(lambda request: texts(answer), config, PAIRS[:1], "ranking")
        assert label_of(replies[0]) == label and (answer in server.requests[0].body["prompt"]) == (
            version == "reworded"
        )


@pytest.mark.parametrize(
    "constraint, fields",
    [
        ("vllm", {"structured_outputs": {"choice": ["1", "2", "None"]}}),
        ("sglang", {"regex": "(1|2|None)"}),
        ("llamacpp", {"grammar": 'root ::= "1" | "2" | "None"', "post_sampling_probs": True}),
    ],
)
def test_constraint_to_the_labels_of_a_pair(constraint, fields):
    def script(request):
        tops = {"1": -2.0, "2": -0.5, "None": -2.0}
        return choices([{"text": "2", "logprobs": {"tokens": ["2"], "token_logprobs": [-0.5], "top_logprobs": [tops]}}])

    config = dataclasses.replace(LABELS, llm_constraint=constraint)
    replies, server, _ = ask_about(script, config, PAIRS[:1], "ranking")
    assert label_of(replies[0]) == 1 and probability_of(replies[0]) == pytest.approx(0.691, abs=1e-3)
    assert fields.items() <= server.requests[0].body.items()
    schema = CONSTRAINTS["json_schema"](QUERIES["ranking"].choices)["response_format"]["json_schema"]["schema"]
    assert schema["enum"] == ["1", "2", "None"]


def test_asking_again_in_a_chat():
    def script(request):
        return choices([{"index": 0, "message": {"content": '("best_description": 1)'}}])

    (reply,), server, _ = ask_about(script, AnnotationConfig(), PAIRS[:1], "ranking", first_answer="<|hm> {user}")
    assert label_of(reply) == 0
    prompt = load_prompt(AnnotationConfig(), "ranking")
    turns = [(turn["role"], turn["content"]) for turn in server.requests[0].body["messages"]]
    assert turns == [
        ("system", prompt.system),
        ("user", prompt.user(PAIRS[0])),
        ("assistant", "\\x3c|hm> {user}"),
        ("user", prompt.again),
    ]


@pytest.mark.parametrize("template", ["llama3", "none"])
def test_asking_again_in_completions(template):
    config = dataclasses.replace(LISTS, llm_chat_template=template)
    (reply,), server, _ = ask_about(lambda r: texts("<label>BAR</label>"), config, [(b"Hm.",)], first_answer="Hm.")
    assert label_of(reply) == 0
    prompt = load_prompt(config)
    text = server.requests[0].body["prompt"]
    places = [text.index(part) for part in (prompt.system, prompt.user((b"Hm.",)), prompt.again)]
    assert places == sorted(places) and text.count("assistant<|end_header_id|>") == (2 if template == "llama3" else 0)


def test_asking_again_may_fail():
    error, _, _ = ask_about(lambda r: refusal(400), LISTS, PAIRS, "ranking", first_answer="")
    assert isinstance(error, RequestError) and error.name == "http_400"
