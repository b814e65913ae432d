"""The embedded judge: a server of the OpenAI protocol that judges NetHack messages by written rules.

A stand-in, so that a run and the tests need no LLM: it knows nothing but `judge_rules`. It reads the goal, the message
and the form of the answer out of the prompt's text, as an LLM would, so it understands only this project's prompts; in
any other it judges the last line by the default goal.
"""

import asyncio
import atexit
import dataclasses
import functools
import json
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, TextIO

from aiohttp import web

from oni_jax.annotation.answers import HELPFUL, UNHELPFUL
from oni_jax.annotation.judge_faults import FAULTS, Payload, draw_fault
from oni_jax.annotation.judge_rules import judge_message
from oni_jax.annotation.prompts import PROMPT_DIR, read_prompt_file, unescape
from oni_jax.config import UserError
from oni_jax.runtime import ChildError, start_child, stop_child

JUDGE_MODEL = "rule-based-judge"
CERTAINTY = 0.95  # the probability that it gives to its label
MAX_REQUEST_BYTES = 1 << 26
_OPEN, _CLOSE = "<message>\n", "\n</message>"


@dataclasses.dataclass(frozen=True)
class JudgeOptions:
    """How the judge behaves beyond judging."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    latency_secs: float = 0.0  # before each answer
    fault_rate: float = 0.0
    faults: tuple[str, ...] = ()  # kinds drawn from; all when empty
    seed: int = 0
    log_path: str = ""  # one JSON line a prompt


class Judge:
    """The server's state and handlers."""

    def __init__(self, options: JudgeOptions):
        unknown = set(options.faults) - set(FAULTS)
        if unknown:
            raise UserError(f"unknown fault {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
        self._options = options
        self._random = random.Random(options.seed)
        self._counts: Counter[str] = Counter(dict.fromkeys(("requests", "prompts", "repeated"), 0))
        self._seen: set[int] = set()  # hashes of prompts judged well
        self._log: TextIO | None = None
        if options.log_path:
            try:
                self._log = open(options.log_path, "a", encoding="utf-8")
            except OSError as error:
                raise UserError(f"--log {options.log_path}: {error}") from None

    def application(self) -> web.Application:
        application = web.Application(client_max_size=MAX_REQUEST_BYTES)
        application.router.add_post("/v1/completions", functools.partial(self._answer, chat=False))
        application.router.add_post("/v1/chat/completions", functools.partial(self._answer, chat=True))
        application.router.add_get("/v1/models", self._models)
        application.router.add_get("/health", self._health)
        application.router.add_get("/stats", self._stats)
        return application

    def close(self) -> None:
        if self._log:
            self._log.close()

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": JUDGE_MODEL, "object": "model", "created": 0, "owned_by": "oni_jax"}
        return web.json_response({"object": "list", "data": [model]})

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _stats(self, _: web.Request) -> web.Response:
        """Requests, prompts judged, those of them judged before, and faults by kind."""
        return web.json_response(self._counts)

    async def _answer(self, request: web.Request, chat: bool) -> web.StreamResponse:
        self._counts["requests"] += 1
        try:
            body = json.loads(await request.read())
            prompts = _prompts(body, chat)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"not a request of this endpoint: {type(error).__name__}: {error}"
            return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=400)
        fault = draw_fault(self._options.faults, self._options.fault_rate, self._random)
        if self._options.latency_secs > 0:
            await asyncio.sleep(self._options.latency_secs)
        verdicts = [judge_prompt(prompt) for prompt in prompts]
        top = body.get("top_logprobs" if chat else "logprobs") if body.get("logprobs") else None
        choices = [_choice(index, verdict, chat, top is not None) for index, verdict in enumerate(verdicts)]
        payload = _payload(body, chat, prompts, choices)
        self._note(prompts, verdicts, fault)
        if fault:
            return await FAULTS[fault](request, payload)
        return web.json_response(payload)

    def _note(self, prompts: Sequence[str], verdicts: Sequence["Verdict"], fault: str | None) -> None:
        if fault:
            self._counts[f"fault_{fault}"] += 1
        else:
            keys = set(map(hash, prompts))
            self._counts["prompts"] += len(prompts)
            self._counts["repeated"] += len(prompts) - len(keys - self._seen)
            self._seen |= keys
        if self._log:
            now = round(time.time(), 3)
            for verdict in verdicts:
                message = verdict.message.decode("latin-1")
                record = {"time": now, "goal": verdict.goal, "message": message, "label": int(verdict.helpful)}
                self._log.write(json.dumps({**record, "fault": fault}) + "\n")
            self._log.flush()


@dataclasses.dataclass(frozen=True)
class Verdict:
    goal: str
    message: bytes
    helpful: bool
    text: str  # the answer
    one_word: bool  # the answer is the label alone


def judge_prompt(prompt: str) -> Verdict:
    """Reads a prompt and judges its message."""
    before, opened, after = prompt.rpartition(_OPEN)
    if opened:
        message = unescape(after.partition(_CLOSE)[0])
        goal, one_word = _read_instructions(before)
    else:
        message, goal, one_word = unescape((prompt.strip().splitlines() or [""])[-1]), "defaultgoal", False
    helpful, words = judge_message(goal, message)
    label = HELPFUL if helpful else UNHELPFUL
    if one_word:
        return Verdict(goal, message, helpful, label, True)
    analysis = f"The message tells of {words}, which is {'' if helpful else 'not '}helpful for this player."
    knowledge = "A stand-in's written rules, no LLM's knowledge."
    text = f"<knowledge>{knowledge}</knowledge>\n<analysis>{analysis}</analysis>\n<label>{label}</label>"
    return Verdict(goal, message, helpful, text, False)


@functools.lru_cache(maxsize=64)
def _read_instructions(text: str) -> tuple[str, bool]:
    """The goal, and whether a single word is wanted, from all that stands before the message."""
    goals, one_word = _known_texts()
    goal = next((goal for goal, wording in goals if wording in text), "defaultgoal")
    return goal, any(wording in text for wording in one_word)


@functools.cache
def _known_texts() -> tuple[list[tuple[str, str]], list[str]]:
    files = [read_prompt_file(path) for path in sorted(PROMPT_DIR.glob("*.json"))]
    goals = [(goal, text) for file in files for goal, text in file["goals"].items()]
    return goals, [file["answers"]["label"] for file in files]


def _prompts(body: Payload, chat: bool) -> list[str]:
    """The prompts of a request; of a chat, its turns' texts in one."""
    if chat:
        return ["\n\n".join(str(turn["content"]) for turn in body["messages"])]
    prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
    if not prompts or not all(isinstance(prompt, str) for prompt in prompts):
        raise ValueError("prompt must be a text, or a list of texts")
    return prompts


def _choice(index: int, verdict: Verdict, chat: bool, with_logprobs: bool) -> Payload:
    logprobs = None
    if with_logprobs and verdict.one_word:
        other = UNHELPFUL if verdict.helpful else HELPFUL
        tops = {verdict.text: math.log(CERTAINTY), other: math.log(1 - CERTAINTY)}
        logprobs = _chat_logprobs(verdict.text, tops) if chat else _completion_logprobs(verdict.text, tops)
    said: dict[str, Any] = (
        {"message": {"role": "assistant", "content": verdict.text}} if chat else {"text": verdict.text}
    )
    return {"index": index, **said, "logprobs": logprobs, "finish_reason": "stop"}


def _chat_logprobs(token: str, tops: dict[str, float]) -> Payload:
    entries = [{"token": word, "logprob": value, "bytes": list(word.encode())} for word, value in tops.items()]
    return {"content": [{**entries[0], "token": token, "top_logprobs": entries}]}


def _completion_logprobs(token: str, tops: dict[str, float]) -> Payload:
    return {"tokens": [token], "token_logprobs": [tops[token]], "top_logprobs": [tops], "text_offset": [0]}


def _payload(body: Payload, chat: bool, prompts: Sequence[str], choices: list[Payload]) -> Payload:
    num_words = sum(len(prompt) for prompt in prompts) // 4
    usage = {"prompt_tokens": num_words, "completion_tokens": len(choices), "total_tokens": num_words + len(choices)}
    kind = "chat.completion" if chat else "text_completion"
    head = {"id": "judge", "object": kind, "created": int(time.time()), "model": body.get("model", JUDGE_MODEL)}
    return {**head, "choices": choices, "usage": usage}


async def serve(options: JudgeOptions, started: Any, stop: asyncio.Event) -> None:
    """Serves until `stop` is set; calls `started(port)` once it listens. Raises UserError if it can't."""
    judge = Judge(options)
    runner = web.AppRunner(judge.application(), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, options.host, options.port)
    try:
        await site.start()
        started(runner.addresses[0][1])
        await stop.wait()
    except OSError as error:
        raise UserError(f"can't listen on {options.host} port {options.port}: {error}") from None
    finally:
        await runner.cleanup()
        judge.close()


class EmbeddedJudge:
    """A judge in a process of its own, on a free loopback port. It ends with `close`, or with this process."""

    def __init__(self, options: JudgeOptions | None = None):
        self._process, self._connection = start_child("judge", run_judge, options or JudgeOptions())
        try:
            raw = self._connection.recv_bytes()
        except EOFError:
            raise ChildError("the judge ended before it listened") from None
        if not raw.isdigit():
            self.close()
            raise ChildError(raw.decode("utf-8", "replace"))
        self.address = f"127.0.0.1:{int(raw)}"
        atexit.register(self.close)  # before multiprocessing's own hook, which would wait for ever

    def close(self) -> None:
        atexit.unregister(self.close)
        stop_child(self._process, self._connection)


def run_judge(connection: Connection, options: JudgeOptions) -> None:
    """The process's body: reports its port, and serves until the other side of `connection` closes."""

    async def body() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(connection.fileno(), stop.set)
        await serve(options, lambda port: connection.send_bytes(str(port).encode()), stop)

    with suppress(BrokenPipeError):
        asyncio.run(body())
