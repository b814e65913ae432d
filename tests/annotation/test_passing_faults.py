"""Faults that pass, and others that are not the caption's: content filters, full contexts, pages, event streams."""

import asyncio
import dataclasses
import json

import pytest
from aiohttp import web

from oni_jax.annotation.address import server_url
from oni_jax.annotation.health import check_server
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from tests.annotation.fake_server import choices, labels, refusal
from tests.annotation.test_client import LABELS, LISTS, ask
from tests.annotation.test_faults import NUM_MESSAGES, PAGE, UNPAID, good_choices
from tests.annotation.test_labeller import CONFIG, all_messages, quick_pauses, run, store
from tests.support.asking import label_of

__all__ = ["quick_pauses", "store"]  # fixtures
CHAT = AnnotationConfig(llm_timeout_secs=9.0, llm_max_in_flight=4)
FILTERED = {b"message 3", b"message 7", b"message 20"}


def refuse_filtered(status, error):
    return web.json_response({"error": error}, status=status)


AZURE = {
    "message": "The response was filtered due to the prompt triggering the content management policy.",
    "code": "content_filter",
    "innererror": {"code": "ResponsibleAIPolicyViolation"},
}
FILTERS = {
    "azure": lambda: refuse_filtered(400, AZURE),
    "openrouter": lambda: refuse_filtered(403, {"message": "Input was flagged", "code": 403}),
    "dashscope": lambda: refuse_filtered(400, {"code": "data_inspection_failed", "message": "no"}),
    "in_200": lambda: refuse_filtered(200, {"code": "content_filter", "message": "no"}),
    "in_200_with_status": lambda: refuse_filtered(200, {"code": 400, "message": "x" * 900 + "content_filter"}),
}


def is_filtered(request) -> bool:
    return bool(FILTERED & set(request.messages))


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("name", FILTERS)
def test_content_filter_costs_its_captions_alone(store, name, api):
    def script(request):
        if is_filtered(request):
            return FILTERS[name]()
        found = good_choices(request)
        return choices([{**each, "message": {"content": each["text"]}} for each in found])

    config = dataclasses.replace(CONFIG, llm_api=api, llm_answer="label", llm_timeout_secs=9.0)
    outcome = run(script, store, NUM_MESSAGES, config)
    assert outcome.unknown == sorted(FILTERED) and outcome.stats["filtered"] == 3 and not outcome.readmitted
    assert outcome.stats["labels_asked"] == NUM_MESSAGES and outcome.stats["state"] == "ok"
    assert {key for key in outcome.stats if key.startswith("failures/")} == {"failures/filtered"}
    alone = [messages for messages in outcome.asked if len(messages) == 1 and FILTERED & set(messages)]
    assert len(alone) == 3  # each is asked about once
    assert "events/fields_dropped" not in outcome.stats


@pytest.mark.parametrize("finish", ["content_filter", "SAFETY"])
def test_choice_that_a_filter_removed_is_counted_and_others_are_kept(store, finish):
    def script(request):
        found = good_choices(request)
        for choice, message in zip(found, request.messages):
            if message in FILTERED:
                choice |= {"text": "<label>FOO</label> perhaps, or", "finish_reason": finish}
        return choices(found)

    outcome = run(script, store, NUM_MESSAGES)
    assert outcome.unknown == sorted(FILTERED) and outcome.stats["filtered"] == 3
    assert outcome.stats["failures/filtered"] == 3 and outcome.stats["answers_unreadable"] == 0
    assert sorted(x for messages in outcome.asked for x in messages) == all_messages(NUM_MESSAGES)


def test_filter_that_refuses_the_first_request_drops_no_field():
    _, server, _ = ask(
        lambda request: refuse_filtered(400, AZURE) if request.number < 1 else labels(request), LABELS, times=2
    )
    assert len(server.requests) == 2 and "logprobs" in server.requests[1].body


@pytest.mark.parametrize("status, said", [*UNPAID, (429, "You exceeded your current quota, please check your plan.")])
def test_unpaid_server_puts_nothing_aside_however_long(store, status, said):
    """Some answers come between the refusals, so that they can't be the captions' fault by comparison."""
    seen = {"refused": 0, "states": set()}

    def script(request):
        if request.number >= 2 and seen["refused"] < 40 and request.number % 7:
            seen["refused"] += 1
            return refusal(status, said)
        return choices(good_choices(request))

    def until(stats):
        seen["states"].add(stats["state"])
        return stats["labels_held"] == NUM_MESSAGES

    config = dataclasses.replace(CONFIG, llm_batch_size=1, llm_max_retries=1)
    outcome = run(script, store, NUM_MESSAGES, config, until=until)
    assert outcome.messages == all_messages(NUM_MESSAGES)
    assert outcome.stats["put_aside"] == outcome.stats["dropped"] == 0
    assert seen["states"] & {"quota used up", "balance used up"}


@pytest.mark.parametrize("status", [400, 500])
def test_full_context_of_neighbours_puts_nobody_aside_and_fewer_are_in_flight(store, status):
    in_flight, refused, most = [0], [0], []

    async def script(request):
        in_flight[0] += 1
        most.append(in_flight[0])
        await asyncio.sleep(0.01)
        shared = in_flight[0] > 1
        await asyncio.sleep(0.01)
        in_flight[0] -= 1
        refused[0] += shared
        return refusal(status, "Context size has been exceeded.") if shared else labels(request)

    config = dataclasses.replace(CONFIG, llm_batch_size=1, llm_max_in_flight=8, llm_max_retries=0, llm_timeout_secs=9.0)
    outcome = run(script, store, NUM_MESSAGES, config)
    assert outcome.messages == all_messages(NUM_MESSAGES) and outcome.stats["put_aside"] == 0
    assert outcome.stats["failures/context_full"] == refused[0] > 0
    assert max(most) > 2 and max(most[-10:]) == 1


def test_request_that_fills_the_context_alone_is_put_aside(store):
    def script(request):
        if b"message 5" in request.messages:
            return refusal(500, "Context size has been exceeded.")
        return labels(request)

    outcome = run(script, store, 6, dataclasses.replace(CONFIG, llm_max_retries=1))
    assert outcome.unknown == [b"message 5"] and len(outcome.messages) == 5


# ---- what is no API


@pytest.mark.parametrize(
    "address, url",
    [
        ("http://h:9001/v1/chat/completions", "http://h:9001/v1"),
        ("https://h/api/v1/completions/", "https://h/api/v1"),
        ("h:8000/v1/models", "http://h:8000/v1"),
        ("http://h/chat/completions", "http://h/v1"),
        ("h/v1/Chat/Completions//", "http://h:9001/v1"),
        ("https://h/v1/responses", "https://h/v1"),
        ("https://h/api/chat/completions", "https://h/api"),
        ("localhost:11434/api/generate", "http://localhost:11434/v1"),
    ],
)
def test_whole_endpoint_counts_as_its_base(address, url):
    assert server_url(address) == url


@pytest.mark.parametrize(
    "text",
    [
        "<!-- a comment --> <html><title>Portal</title>",
        "<meta http-equiv=refresh content=/login><title>Portal</title>",
        "<script>location = '/login'</script><h1>Portal</h1>",
        "<div><h1>Portal</h1></div>",
    ],
)
def test_page_in_any_form_is_a_page(text):
    error, _, _ = ask(lambda request: web.Response(text=text), LISTS)
    assert error.name == "web_page" and "(Portal)" in error.detail


def test_web_page_and_login_are_named_while_running():
    text = PAGE.format("Sign in &amp; more")
    error, _, _ = ask(lambda request: web.Response(text=text, content_type="text/html"), LISTS)
    assert error.name == "web_page" and error.server_at_fault
    assert "a web page (Sign in & more)" in error.detail and "/v1" in error.detail
    error, _, _ = ask(lambda request: web.Response(text=text, status=403), LISTS)  # a firewall's, not the API's
    assert error.name == "web_page" and error.server_at_fault
    error, _, _ = ask(lambda request: refusal(302, Location="https://sso.h/login?next=/v1"), LISTS)
    assert error.name == "redirected" and "to a login" in error.detail


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda: web.Response(text=PAGE.format("Portal"), content_type="text/html"), r"web page \(Portal\)"),
        (lambda: web.Response(status=302, headers={"Location": "/login"}), "redirects to a login.*/login"),
        (lambda: web.Response(status=401), "refuses the key"),
    ],
)
def test_address_without_an_api_is_named_at_the_start(answer, words):
    async def body():
        async def get(request):
            return answer()

        application = web.Application()
        application.router.add_get("/v1/models", get)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        config = AnnotationConfig(llm_server_addr=f"127.0.0.1:{runner.addresses[0][1]}", llm_required=True)
        with pytest.raises(UserError, match=words) as error:
            await asyncio.get_running_loop().run_in_executor(None, check_server, config)
        await runner.cleanup()
        return str(error.value)

    assert asyncio.run(body()).isprintable()


# ---- event streams


def stream(*events, end="data: [DONE]\n\n"):
    text = ": a comment\n\n" + "".join(f"data: {json.dumps(event)}\n\n" for event in events) + end
    return web.Response(text=text, content_type="text/event-stream")


def deltas(*texts, **last):
    return [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts] + [
        {"choices": [{"index": 0, "delta": {}, **last}], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    ]


def ask_streaming(*events, **options):
    replies, _, _ = ask(lambda request: stream(*events, **options), CHAT, [b"Hm."])
    return replies


def test_event_stream_is_read_as_one_answer():
    (reply,) = ask_streaming(*deltas("<lab", "el>FOO</la", "bel>", finish_reason="stop"))
    assert label_of(reply) == 1 and reply.usage == {"prompt_tokens": 7, "completion_tokens": 3}
    parts = [{"choices": [{"index": i, "text": text}]} for text in ("<label>", "BAR</label>") for i in (1, 0, 2)]
    replies, _, _ = ask(lambda request: stream(*parts), LISTS)
    assert [label_of(reply) for reply in replies] == [0, 0, 0]


def test_event_stream_that_ends_early_is_cut_off():
    """As an answer of that finish reason, which may be no label yet."""
    (reply,) = ask_streaming(*deltas("<label>FOO</label> or rather <label>B")[:1], end="")
    whole, _, _ = ask(
        lambda request: choices(
            [{"message": {"content": "<label>FOO</label> or rather <label>B"}, "finish_reason": "length"}]
        ),
        CHAT,
        [b"Hm."],
    )
    assert label_of(reply) == label_of(whole[0])


def test_errors_of_an_event_stream_are_those_of_answers():
    assert ask_streaming(*deltas("<lab"), {"error": {"code": 502, "message": "lost"}}).name == "http_502"
    assert ask_streaming(*deltas("<label>FOO", finish_reason="content_filter"))[0].filtered
    assert ask_streaming(end="data: {nonsense\n\n").name == "broken_json"
    assert ask_streaming(end="").name == "too_few_choices"


def test_stream_of_many_tokens_is_read():
    """A thousand events of two hundred bytes each are more than an answer in one piece may have."""
    events = [{"choices": [{"index": 0, "delta": {"content": "word "}}], "id": "x" * 250} for _ in range(2000)]
    (reply,) = ask_streaming(*events, *deltas("<label>BAR</label>", finish_reason="stop"))
    assert label_of(reply) == 0
