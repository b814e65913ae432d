"""Each fault of a server, over HTTP: counted under its name, put right by its rule, and never a wrong label."""

import asyncio
import dataclasses
import email.utils
import gzip
import socket
import time
import tracemalloc

import pytest
from aiohttp import web

from oni_jax.annotation import failures, pacing
from oni_jax.annotation.client import Client, RequestError
from oni_jax.annotation.failures import retry_after_secs
from oni_jax.annotation.pacing import Pacer
from oni_jax.settings.annotation import AnnotationConfig
from tests.annotation.fake_server import choices, cut, drip, fake_server, hang, refusal
from tests.annotation.test_client import LISTS, ask
from tests.annotation.test_labeller import CONFIG, all_messages, flat, quick_pauses, run, store
from tests.support.asking import label_of, load_prompt

__all__ = ["quick_pauses", "store"]  # fixtures
NUM_MESSAGES = 24
FAULTY_REQUESTS = range(1, 4)


def truth(message: bytes) -> int:
    return int(message[8:]) % 2


def good_choices(request) -> list[dict]:
    words = ("BAR", "FOO")
    return [{"index": i, "text": f"<label>{words[truth(m)]}</label>"} for i, m in enumerate(request.messages)]


def wrong_choices(request) -> list[dict]:
    """The opposite of what is true: no such label may be kept."""
    words = ("FOO", "BAR")
    return [{"index": i, "text": f"<label>{words[truth(m)]}</label>"} for i, m in enumerate(request.messages)]


def close(request):
    request.raw.transport.abort()
    return web.Response()


async def no_http(request):
    request.raw.transport.write(b"ICY 200 OK\r\nwhat: ever\r\n\r\n")
    await asyncio.sleep(0.05)
    request.raw.transport.close()
    return web.Response()


def refuse(status, message="no", **headers):
    return lambda request: refusal(status, message, **headers)


def change(function):
    return lambda request: choices(function(wrong_choices(request)))


def answer_error(error):
    """The error of a gateway, which answers with status 200."""
    return lambda request: web.json_response({"error": error})


def fail_choices(error):
    """The same where the answer had begun: in its choices."""
    return change(lambda good: [{**choice, "finish_reason": "error", "error": error} for choice in good])


def page(title):
    return lambda request: web.Response(text=PAGE.format(title), content_type="text/html")


PAGE = "<!DOCTYPE html><html><title>{}</title>It works!</html>"
UNPAID = ((402, "Insufficient Balance"), (402, "no"), (403, "Your credit balance is too low."), (400, "Arrearage"))
ERRORS = (
    ("http_429", {"code": 429, "message": "free-models-per-min"}),
    ("http_429", {"code": "rate_limit_exceeded", "message": "slow down"}),
    ("http_503", {"status": "503", "message": "no"}),
    ("http_500", {"code": 500}),
    ("balance_used_up", {"code": 402, "message": "more credits, or fewer max_tokens"}),
    ("quota_used_up", {"type": "insufficient_quota", "message": "billing"}),
    ("error_answer", {"message": "Provider returned error"}),
)
FAULTS = [
    ("http_429", refuse(429)),
    *[
        ("http_429", refuse(429, **{"Retry-After": text}))
        for text in ("0.02", "0", "-5", "1e9", "9" * 500, "soon", "", "inf", "nan", "Thu, 01 Jan 1970 00:00:00 GMT")
        + ("Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 99 Dec 99999 23:59:59 GMT")
    ],
    ("http_400", refuse(400)),
    ("http_500", refuse(500)),
    ("http_500", refuse(500, **{"Retry-After": "999999"})),
    ("http_502", refuse(502)),
    ("http_503", refuse(503)),
    ("http_504", refuse(504)),
    ("http_413", refuse(413)),
    ("http_404", refuse(404)),
    ("wrong_key", refuse(401)),
    ("wrong_key", refuse(403)),
    ("wrong_model", refuse(404, f"The model `{CONFIG.llm_model}` does not exist.")),
    ("wrong_model", refuse(400, f"Only tiny allowed now, your model {CONFIG.llm_model}")),
    ("http_400", refuse(400, f"model {CONFIG.llm_model}: maximum context length is 8192 tokens")),
    *[("redirected", refuse(status, Location="http://192.0.2.1/")) for status in (301, 302, 303, 307, 308)],
    ("redirected", refuse(304)),
    ("disconnected", close),
    ("disconnected", cut),
    ("bad_http", no_http),
    ("timed_out", hang),
    ("too_slow", drip),
    ("too_slow", lambda request: drip(request, 500)),
    ("too_large", lambda request: web.Response(body=b" " * (1 << 22))),
    ("too_large", lambda request: web.Response(status=500, body=b" " * (1 << 22))),
    ("broken_json", lambda request: web.Response(text='{"choices": [')),
    ("broken_json", lambda request: web.Response(text="")),
    (
        "broken_json",
        lambda request: web.Response(body=gzip.compress((choices(wrong_choices(request)).text or "").encode())),
    ),
    ("error_answer", lambda request: web.json_response({"error": "none of your business"})),
    ("error_answer", lambda request: web.json_response({"detail": "upstream lost", "choices": []})),
    ("error_answer", change(lambda good: [{**choice, "text": "", "finish_reason": "error"} for choice in good])),
    *[("balance_used_up", refuse(*refused)) for refused in UNPAID],
    *[("quota_used_up", refuse(429, said)) for said in ("insufficient_quota", "You exceeded your current quota.")],
    *[(name, answer_error(error)) for name, error in ERRORS],
    *[(name, fail_choices(error)) for name, error in ERRORS],
    ("http_429", change(lambda good: [{**choice, "finish_reason": "insufficient_system_resource"} for choice in good])),
    *[("web_page", page(title)) for title in ("Sign in", "")],
    ("http_502", lambda request: web.Response(status=502, text=PAGE.format("502"), content_type="text/html")),
    ("http_529", refuse(529)),
    ("too_few_choices", change(lambda good: [])),
    ("too_few_choices", change(lambda good: good[:-1])),
    ("too_few_choices", lambda request: choices({"0": "<label>FOO</label>"})),
    ("too_many_choices", change(lambda good: [*good, good[0]])),
    ("bad_indices", change(lambda good: [{**choice, "index": 0} for choice in [*good, *good][: len(good)]])),
    ("bad_indices", change(lambda good: [{**choice, "index": choice["index"] + 1} for choice in good])),
    ("bad_indices", change(lambda good: [{"text": choice["text"]} for choice in good])),
    ("bad_indices", change(lambda good: [{**choice, "index": float(choice["index"])} for choice in good])),
    ("empty_text", change(lambda good: [{**choice, "text": ""} for choice in good])),
    ("empty_text", change(lambda good: [{**choice, "text": None} for choice in good])),
    ("unreadable", change(lambda good: [{**choice, "text": "not FOO"} for choice in good])),
    ("unreadable", change(lambda good: [{**choice, "text": "FOO or BAR"} for choice in good])),
]


@pytest.mark.parametrize("name, fault", FAULTS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(FAULTS)])
def test_each_fault_is_named_and_put_right(store, monkeypatch, name, fault):
    """Three requests meet the fault: after them each message has its right label, from one good answer."""
    monkeypatch.setattr(pacing, "MAX_RETRY_AFTER_SECS", 0.05)
    per_item = name in ("empty_text", "unreadable")  # asked once more, and no more
    good: list[bytes] = []

    def script(request):
        if request.number in FAULTY_REQUESTS and (len(request.messages) > 1 or name != "bad_indices"):
            return fault(request)  # one choice needs no index
        good.extend(request.messages)
        return choices(good_choices(request))

    late = name in ("timed_out", "too_slow")
    config = dataclasses.replace(CONFIG, llm_max_in_flight=1, llm_max_retries=4, llm_timeout_secs=0.3 if late else 9.0)
    outcome = run(script, store, NUM_MESSAGES, config)
    labelled = [annotation for annotation in outcome.annotations if annotation.answer is not None]
    assert all(label_of(annotation) == truth(annotation.item[0]) for annotation in labelled)
    assert sorted(good) == outcome.messages and len(good) == len(set(good))  # none is asked about after a good answer
    assert sorted(outcome.messages + outcome.unknown) == all_messages(NUM_MESSAGES)
    assert outcome.stats["put_aside"] == len(outcome.unknown) and (per_item or not outcome.unknown)
    counted = {key.partition("/")[2] for key in outcome.stats if key.startswith("failures/")}
    assert name in counted <= {name, *["unreachable"] * late} and outcome.stats["state"] == "ok"
    assert name in str(failures.__doc__) or name.startswith("http_")


def test_shuffled_choices_are_no_failure(store):
    outcome = run(lambda request: choices(good_choices(request)[::-1]), store, NUM_MESSAGES)
    assert all(label_of(annotation) == truth(annotation.item[0]) for annotation in outcome.annotations)
    assert outcome.messages == all_messages(NUM_MESSAGES) and outcome.stats["requests_failed"] == 0
    assert outcome.stats["events/choices_reordered"] >= 3


@pytest.mark.parametrize("status", [429, 503])
def test_a_message_that_is_always_refused_holds_up_no_other(store, status):
    """Though the server is to blame for it by name."""

    def script(request):
        return refusal(status) if b"message 23" in request.messages else choices(good_choices(request))

    outcome = run(script, store, NUM_MESSAGES, until=lambda stats: stats["labels_held"] == NUM_MESSAGES - 1)
    assert outcome.messages == sorted(set(all_messages(NUM_MESSAGES)) - {b"message 23"})
    assert outcome.stats["put_aside"] == 0 and outcome.stats["backlog"] == 1
    last = max(i for i, messages in enumerate(outcome.asked) if b"message 23" not in messages)
    assert sum(b"message 23" in messages for messages in outcome.asked[:last]) <= 5


def test_a_message_that_is_always_too_long_holds_up_no_other(store):
    """The server's words name the model too."""

    def script(request):
        words = f"This model's maximum context length is 10 tokens ({CONFIG.llm_model})"
        return refusal(400, words) if b"message 23" in request.messages else choices(good_choices(request))

    outcome = run(script, store, NUM_MESSAGES, dataclasses.replace(CONFIG, llm_max_retries=1))
    assert outcome.unknown == [b"message 23"] and len(outcome.messages) == NUM_MESSAGES - 1


def test_lists_get_shorter_where_they_are_too_much(store):
    def script(request):
        return refusal(429) if len(request.messages) > 4 else choices(good_choices(request))

    outcome = run(script, store, 64, dataclasses.replace(CONFIG, llm_max_in_flight=1, llm_batch_size=32))
    assert outcome.messages == all_messages(64)
    assert len(outcome.asked) < 40 and sorted(flat([m for m in outcome.asked if len(m) <= 4])) == outcome.messages


# ---- how long it may take, and how much memory


def test_labeller_asks_again_within_30_secs_of_a_servers_return():
    """Whatever failed before, and whatever it asked for; and connecting takes no longer than that either."""
    for error in (
        RequestError("unreachable", server_at_fault=True),
        RequestError("http_429", server_at_fault=True, retry_after_secs=1e300),
        RequestError("http_503", server_at_fault=True, retry_after_secs=float("inf")),
        RequestError("http_500", retry_after_secs=1e9),
        RequestError("disconnected"),
    ):
        pacer = Pacer(100, True, 16)
        for _ in range(50):
            pacer.failed([(b"x",)], error)
            pacer._resume_at = pacer._retry_after_until  # as if it had waited, and failed again
        wait_secs = pacer.wait_secs(0)
        assert wait_secs is not None and wait_secs + 2 < 30


def test_no_more_prompts_are_sent_in_a_second_than_asked_for():
    pacer = Pacer(100, True, 16, max_per_sec=50.0)
    start, num_sent = time.monotonic(), 0
    while num_sent < 120:
        wait_secs = pacer.wait_secs(0)
        assert wait_secs is not None
        time.sleep(wait_secs)
        num_sent += pacer.num_items()
        pacer.sent(pacer.num_items())
        pacer.succeeded([(b"a",), (b"b",)])
    assert num_sent - 100 <= 50 * (time.monotonic() - start) < 150  # the last list goes at once
    wait_secs = pacer.wait_secs(0)
    assert wait_secs is not None and wait_secs > 1


@pytest.mark.parametrize("text, secs", [("7", 7.0), (" 7.5 ", 7.5), ("0", 0.0), ("1000000000", 1e9), ("9" * 400, None)])
def test_retry_after_as_a_number(text, secs):
    assert retry_after_secs(text) == (float("inf") if secs is None else secs)


@pytest.mark.parametrize("text", ["", "-1", "-5.5", "1e9", "soon", "nan", "inf", "1_0", "٣", "7 s", "Wed, 99 Oct"])
def test_retry_after_that_is_none(text):
    assert retry_after_secs(text) == 0.0


def test_retry_after_as_a_date():
    assert retry_after_secs("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    soon = email.utils.formatdate(time.time() + 100, usegmt=True)
    assert 90 < retry_after_secs(soon) <= 100


def test_a_host_that_answers_no_connection_is_unreachable():
    """Its packets are dropped, as by a machine that is switched off: no fault of the messages."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:  # the queue of connections is full: the next is not answered
            one.setblocking(False)
            one.connect_ex(address)
        config = dataclasses.replace(LISTS, llm_server_addr=f"127.0.0.1:{address[1]}", llm_timeout_secs=1.0)

        async def body():
            async with Client(config, load_prompt(config)) as client:
                await client.ask([(b"Hm.",)])

        with pytest.raises(RequestError) as error:
            asyncio.run(body())
        for one in waiting:
            one.close()
    assert error.value.name == "unreachable" and error.value.server_at_fault


def test_connections_notice_a_peer_that_vanishes():
    """Within 20 s, by probes of the kernel's."""
    found = []

    async def body():
        async with fake_server(lambda request: choices(wrong_choices(request))) as server:
            config = dataclasses.replace(LISTS, llm_server_addr=server.address)
            async with Client(config, load_prompt(config)) as client:
                await client.ask([(b"message 1",)])
                connector = client._transport._session.connector
                assert connector
                for entries in connector._conns.values():
                    found.extend(transport.get_extra_info("socket") for p, _ in entries if (transport := p.transport))
                for one in found:
                    assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                    idle, interval, count = (
                        one.getsockopt(socket.IPPROTO_TCP, option)
                        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                    )
                    assert idle + interval * count <= 20

    asyncio.run(body())
    assert found


def test_a_gigabyte_is_not_taken_in():
    sent = 0

    async def script(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request.raw)
        for _ in range((1 << 30) >> 16):
            await response.write(b" " * (1 << 16))
            sent += 1 << 16
        return response

    tracemalloc.start()
    error, _, _ = ask(script, dataclasses.replace(LISTS, llm_timeout_secs=30.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.name == "too_large" and sent < 1 << 25 and peak < 1 << 24


def test_a_small_answer_does_not_unpack_into_a_large_one():
    bomb = gzip.compress(b" " * (1 << 26), 1)
    assert len(bomb) < 1 << 19
    tracemalloc.start()
    error, _, _ = ask(lambda request: web.Response(body=bomb, headers={"Content-Encoding": "gzip"}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.name == "broken_json" and peak < 1 << 24


def test_a_huge_list_has_a_bound_too():
    """However many prompts are in it."""
    messages = [b"message %d" % i for i in range(1000)]
    error, _, _ = ask(
        lambda request: web.Response(body=b" " * ((1 << 24) + 1)), AnnotationConfig(llm_api="completions"), messages
    )
    assert error.name == "too_large"
