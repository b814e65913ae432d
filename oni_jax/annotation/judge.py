"""The embedded judge: a server of the OpenAI protocol that judges an environment's captions by its written rules.

A stand-in for an LLM in tests and trial runs: it knows nothing but those rules. It parses the goal, the captions and
the form of the answer from the prompt's text, so it understands only this project's prompts; of any other it judges the
last line by the default goal.
"""

import asyncio
import atexit
import dataclasses
import functools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Protocol, TextIO

from aiohttp import web

from oni_jax.annotation.health import check_server
from oni_jax.annotation.judge_answers import (
    JUDGE_MODEL,
    Payload,
    Reader,
    Verdict,
    judge_model,
    load_rules,
    make_choice,
    make_payload,
    read_prompts,
)
from oni_jax.annotation.queries.base import QueryKind
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.envs.base import Language
from oni_jax.host.children import BEAT, BEAT_SECS, Child, ChildLost
from oni_jax.host.reporting import report
from oni_jax.host.restarts import Restarts
from oni_jax.host.runtime import LOWEST_PRIORITY, ChildError, start_child
from oni_jax.settings.annotation import AnnotationConfig, EmbeddedJudgeConfig
from oni_jax.settings.fields import UserError, caption_text

MAX_REQUEST_BYTES = 1 << 26
CHECK_SECS, CLOSE_SECS = 1.0, 1.0  # interval of looks at the judge; time for it to end
LOST = "processes that answer"  # name in errors
MAX_SHARED_PER_SEC = 100.0  # prompts to a judge on CPU cores that environments want; 500 slowed them by a tenth


class Trouble(Protocol):
    """Fault injection, for tests."""

    def draw(self) -> str | None:
        """Returns the next request's fault, or None."""
        ...

    async def answer(self, fault: str, request: web.Request, payload: Payload) -> web.StreamResponse:
        """Responds with a fault instead of `payload`."""
        ...


@dataclasses.dataclass(frozen=True)
class JudgeOptions:
    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    latency_secs: float = 0.0  # before each answer
    wrong_fraction: float = 0.0  # fraction of the items that are answered wrongly; see `Reader`
    wrong_seed: int = 0
    log_path: str = ""  # file of one JSON line per prompt
    trouble: Trouble | None = None


class Judge:
    """The server's state and handlers. Raises UserError: the environment has no rules."""

    def __init__(self, language: Language | None, options: JudgeOptions):
        self._reader = Reader(language, options.wrong_fraction, options.wrong_seed)
        self._options, self._trouble = options, options.trouble
        self._counts: Counter[str] = Counter(dict.fromkeys(("requests", "prompts", "repeated"), 0))
        self._seen: set[int] = set()  # hashes of prompts answered without a fault
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
        """Counts of requests, prompts, repeated prompts, and faults by kind."""
        return web.json_response(self._counts)

    async def _answer(self, request: web.Request, chat: bool) -> web.StreamResponse:
        self._counts["requests"] += 1
        try:
            body = json.loads(await request.read())
            prompts = read_prompts(body, chat)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"not a request of this endpoint: {type(error).__name__}: {error}"
            return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=400)
        fault = self._trouble.draw() if self._trouble else None
        if self._options.latency_secs > 0:
            await asyncio.sleep(self._options.latency_secs)
        verdicts = [self._reader.judge_prompt(prompt) for prompt in prompts]
        top = body.get("top_logprobs" if chat else "logprobs") if body.get("logprobs") else None
        choices = [make_choice(index, verdict, chat, top is not None) for index, verdict in enumerate(verdicts)]
        payload = make_payload(body, chat, prompts, choices)
        self._record(prompts, verdicts, fault)
        if self._trouble and fault:
            return await self._trouble.answer(fault, request, payload)
        return web.json_response(payload)

    def _record(self, prompts: Sequence[str], verdicts: Sequence[Verdict], fault: str | None) -> None:
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
                captions = [caption_text(caption) for caption in verdict.item]
                texts = {"message": captions[0]} if len(captions) == 1 else {"messages": captions}
                record = {"time": now, "goal": verdict.goal, **texts, "label": verdict.label}
                self._log.write(json.dumps({**record, "fault": fault}) + "\n")
            self._log.flush()


async def serve(language: Language | None, options: JudgeOptions, started: Any, stop: asyncio.Event) -> None:
    """Serves until `stop` is set; calls `started(port)` once it listens. Raises UserError if it can't."""
    judge = Judge(language, options)
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
    """A judge in a child process, on a free loopback port. It ends with `close`, or with this process.

    One that is killed or stopped is started again, on the same port.

    Args:
        language: the environment's.
        niceness: niceness of the child process.
        restarts: counts them; one too many, and its `check` raises.
    """

    def __init__(
        self,
        language: Language | None,
        options: JudgeOptions | None = None,
        niceness: int = 0,
        restarts: Restarts | None = None,
    ):
        self._language, self._options, self._niceness = language, options or JudgeOptions(), niceness
        self._restarts, self._closing = restarts or Restarts(), threading.Event()
        self._start()
        try:
            while not (said := self._child.wait(CHECK_SECS)):
                pass
        except ChildLost as reason:
            self._child.stop(0.0)
            raise ChildError(f"the judge {reason}, before it listened") from None
        if not said[0].isdigit():
            self._child.stop(CLOSE_SECS)
            raise ChildError(said[0].decode("utf-8", "replace"))
        port = int(said[0])
        self.address, self._options = f"127.0.0.1:{port}", dataclasses.replace(self._options, port=port)
        self._child.is_ready = True
        # A child of this thread dies with it, and it ends when the judge may.
        self._watching = threading.Thread(target=self._watch, name="judge", daemon=True)
        self._watching.start()
        atexit.register(self.close)  # before multiprocessing's hook, which would block for ever

    def close(self) -> None:
        atexit.unregister(self.close)
        self._closing.set()
        self._watching.join()
        self._child.stop(CLOSE_SECS)

    def _start(self) -> None:
        self._process, connection = start_child(
            "judge", run_judge, self._language, self._options, dict(QUERIES), niceness=self._niceness
        )
        self._child = Child(self._process, connection)

    def _watch(self) -> None:
        while not self._closing.wait(CHECK_SECS):
            try:
                for said in self._child.receive():
                    if not said.isdigit():  # why it ended
                        raise ChildLost(f"failed: {said.decode('utf-8', 'replace')}")
                    self._child.is_ready = True
            except ChildLost as reason:
                text = f"the judge (pid {self._process.pid}) {reason}"
                try:
                    of_allowed = self._restarts.count(LOST, text)
                except ChildError as error:
                    report(f"warning: {error}")
                    return
                report(f"warning: {text}: started again ({of_allowed})")
                self._child.stop(0.0)
                self._start()


@contextmanager
def server_or_judge(
    config: AnnotationConfig,
    language: Language | None,
    shares_cpu: bool = False,
    restarts: Restarts | None = None,
) -> Iterator[AnnotationConfig]:
    """Yields the settings with a server's address; if they name none, that of a judge started meanwhile.

    Args:
        config: names a server, or none.
        language: the environment's, for the judge.
        shares_cpu: a judge takes only the CPU time that others leave, and MAX_SHARED_PER_SEC prompts a second.
        restarts: see `EmbeddedJudge`.

    Raises:
        UserError: a required server does not answer, or the environment has no rules for the judge.
    """
    with ExitStack() as stack:
        if not config.llm_server_addr:
            load_rules(language)
            options = JudgeOptions(
                latency_secs=config.judge.latency_secs,
                wrong_fraction=config.judge.wrong_fraction,
                wrong_seed=config.judge.wrong_seed,
            )
            judge = EmbeddedJudge(language, options, LOWEST_PRIORITY * shares_cpu, restarts)
            stack.enter_context(closing(judge))
            model = judge_model(config)
            config = dataclasses.replace(
                config, llm_server_addr=judge.address, llm_model=model, answers="", judge=EmbeddedJudgeConfig()
            )
            if shares_cpu:  # lists cost a fifth of the time
                rate = config.llm_max_per_sec or MAX_SHARED_PER_SEC
                config = dataclasses.replace(
                    config, llm_api="completions", llm_chat_template="llama3", llm_max_per_sec=rate
                )
            report(f"no --llm_server_addr: labels come from a rule-based stand-in at {judge.address}, not from an LLM")
        check_server(config)
        yield config


def run_judge(
    connection: Connection, language: Language, options: JudgeOptions, kinds: Mapping[str, QueryKind]
) -> None:
    """Runs in the child process: sends its port, then beats; serves until the other end of `connection` closes."""
    QUERIES.update(kinds)  # plugins' included

    async def body() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(connection.fileno(), stop.set)
        beats = asyncio.create_task(_beat(connection))
        await serve(language, options, lambda port: connection.send_bytes(str(port).encode()), stop)
        beats.cancel()

    with suppress(BrokenPipeError):
        asyncio.run(body())


async def _beat(connection: Connection) -> None:
    with suppress(OSError):
        while True:
            await asyncio.sleep(BEAT_SECS)
            connection.send_bytes(BEAT)
