"""The judge with injected faults of servers and networks, for tests and for runs with faults.

python -m tests.support.judge_faults --port 9001 --fault http_500 --fault hang --fault_rate 0.3
"""

import asyncio
import dataclasses
import random
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from aiohttp import web

from launch import judge
from launch.program import brief_program
from oni_jax.annotation.judge import JudgeOptions
from oni_jax.annotation.judge_answers import Payload
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import UserError, setting

SLOW_BYTE_SECS = 1.0
HUGE_ANSWER_BYTES = 1 << 30


async def _close(request: web.Request, payload: Payload) -> web.StreamResponse:
    assert request.transport
    request.transport.abort()
    return web.Response()


async def _hang(request: web.Request, payload: Payload) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def _drip(request: web.Request, payload: Payload) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    with suppress(ConnectionError):  # the client has left
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(SLOW_BYTE_SECS)
    return response


async def _huge(request: web.Request, payload: Payload) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    with suppress(ConnectionError):
        await response.prepare(request)
        for _ in range(HUGE_ANSWER_BYTES >> 16):
            await response.write(b" " * (1 << 16))
    return response


def _status(status: int, headers: Mapping[str, str] | None = None) -> "Fault":
    async def refuse(request: web.Request, payload: Payload) -> web.StreamResponse:
        return web.json_response({"error": {"message": "a fault on purpose"}}, status=status, headers=headers)

    return refuse


async def _wrong_model(request: web.Request, payload: Payload) -> web.StreamResponse:
    return web.json_response({"error": {"message": f"The model {payload['model']} does not exist."}}, status=404)


async def _broken_json(request: web.Request, payload: Payload) -> web.StreamResponse:
    text = web.json_response(payload).text or ""
    return web.Response(text=text[: len(text) // 2], content_type="application/json")


def _choices(change: Callable[[list[Payload]], list[Payload]]) -> "Fault":
    async def answer(request: web.Request, payload: Payload) -> web.StreamResponse:
        return web.json_response({**payload, "choices": change(payload["choices"])})

    return answer


def _with_text(text: str) -> Callable[[list[Payload]], list[Payload]]:
    def change(choices: list[Payload]) -> list[Payload]:
        said = [
            {"message": {"role": "assistant", "content": text}} if "message" in c else {"text": text} for c in choices
        ]
        return [{**choice, **words, "logprobs": None} for choice, words in zip(choices, said)]

    return change


Fault = Callable[[web.Request, Payload], Awaitable[web.StreamResponse]]
FAULTS: Mapping[str, Fault] = {
    "http_400": _status(400),
    "http_429": _status(429),
    "http_429_retry_after": _status(429, {"Retry-After": "1"}),
    "http_500": _status(500),
    "http_503": _status(503),
    "wrong_key": _status(401),
    "wrong_model": _wrong_model,
    "redirect": _status(307, {"Location": "http://192.0.2.1/v1/"}),
    "close": _close,
    "hang": _hang,
    "drip": _drip,
    "huge": _huge,
    "broken_json": _broken_json,
    "no_choices": _choices(lambda choices: []),
    "missing_choices": _choices(lambda choices: choices[:-1]),
    "extra_choices": _choices(lambda choices: [*choices, choices[0]]),
    "same_index": _choices(lambda choices: [{**choice, "index": 0} for choice in choices]),
    "shuffled_choices": _choices(lambda choices: random.sample(choices, len(choices))),
    "unreadable": _choices(_with_text("It could go either way, and I would rather not say.")),
    "empty_text": _choices(_with_text("")),
}


class Faults:
    """A `Trouble` of the judge: a request has one of the faults `kinds` (all when empty) with probability `rate`."""

    def __init__(self, rate: float, kinds: Sequence[str] = (), seed: int = 0):
        self._rate, self._kinds = rate, list(kinds or FAULTS)
        self._random = random.Random(seed)

    def draw(self) -> str | None:
        return self._random.choice(self._kinds) if self._random.random() < self._rate else None

    async def answer(self, fault: str, request: web.Request, payload: Payload) -> web.StreamResponse:
        return await FAULTS[fault](request, payload)


@dataclasses.dataclass(frozen=True)
class FaultyJudgeConfig(judge.JudgeConfig):
    """A judge with faults."""

    fault_rate: float = setting(0.0, "Fraction of requests with a fault.", within="[0, 1]")
    fault: str = setting("", "Kind of fault; may be given several times; default: all.", repeated=",")
    seed: int = setting(0, "Seed of the faults.")

    @property
    def options(self) -> JudgeOptions:
        return dataclasses.replace(super().options, trouble=Faults(self.fault_rate, self.kinds, self.seed))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind in self.fault.split(",") if kind]


def check(config: FaultyJudgeConfig) -> None:
    check_values(config)
    if unknown := {*config.kinds} - {*FAULTS}:
        raise UserError(f"--fault {min(unknown)}: is unknown; use one of {', '.join(FAULTS)}")


main = brief_program("judge", FaultyJudgeConfig(), check, judge.run)

if __name__ == "__main__":
    sys.exit(main())
