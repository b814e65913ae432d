"""A scripted server of the OpenAI protocol, for what the judge does not do. Lives in the test's event loop."""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

from oni_jax.annotation.judge_answers import Verdict
from tests.support.asking import judge_prompt


@dataclasses.dataclass
class Request:
    """One request: its body, the messages in its prompts, and its place among the requests."""

    body: dict[str, Any]
    messages: list[bytes]
    number: int
    raw: web.Request


Script = Callable[[Request], web.StreamResponse | Awaitable[web.StreamResponse]]


class FakeServer:
    address = ""

    def __init__(self, script: Script, judge_prompt: Callable[[str], Verdict]):
        self.script, self.judge_prompt = script, judge_prompt
        self.requests: list[Request] = []

    @property
    def asked(self) -> list[list[bytes]]:
        return [request.messages for request in self.requests]

    async def answer(self, raw: web.Request) -> web.StreamResponse:
        body = await raw.json()
        prompts = body.get("prompt", [])
        if "messages" in body:
            prompts = [next(turn["content"] for turn in body["messages"] if turn["role"] == "user")]
        prompts = prompts if isinstance(prompts, list) else [prompts]
        request = Request(body, [self.judge_prompt(prompt).item[0] for prompt in prompts], len(self.requests), raw)
        self.requests.append(request)
        response = self.script(request)
        return response if isinstance(response, web.StreamResponse) else await response


@contextlib.asynccontextmanager
async def fake_server(
    script: Script, judge_prompt: Callable[[str], Verdict] = judge_prompt
) -> AsyncIterator[FakeServer]:
    server = FakeServer(script, judge_prompt)
    application = web.Application(client_max_size=1 << 26)
    application.router.add_post("/{path:.*}", server.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.address = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def texts(*answers: str) -> web.Response:
    """A completion with these texts, in order."""
    return choices([{"index": index, "text": text} for index, text in enumerate(answers)])


def labels(request: Request, label: str = "FOO") -> web.Response:
    """The same label for every prompt."""
    return texts(*[f"<label>{label}</label>"] * len(request.messages))


def choices(entries: Any) -> web.Response:
    return web.json_response({"choices": entries})


def refusal(status: int, message: str = "no", **headers: str) -> web.Response:
    text = json.dumps({"error": {"message": message}})
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)


async def hang(request: Request) -> web.StreamResponse:
    """Answers too late for everybody."""
    await asyncio.sleep(30)
    return web.Response()


async def drip(request: Request, status: int = 200) -> web.StreamResponse:
    """A byte now and then, for ever."""
    response = web.StreamResponse(status=status)
    await response.prepare(request.raw)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.03)


async def cut(request: Request) -> web.StreamResponse:
    """Closes the connection in the middle of its answer."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request.raw)
    await response.write(b'{"choices')
    assert request.raw.transport
    request.raw.transport.close()
    return response
