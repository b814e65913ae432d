"""An asynchronous client of one OpenAI-compatible server: one reply for each item of a request.

A failed request is a RequestError with a name of its own (see `failures`). Retries, splitting and backoff are the
labeller's part.
"""

import json
import socket
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp

from oni_jax.annotation.address import CONNECT_TIMEOUT_SECS, endpoint_url, request_headers
from oni_jax.annotation.answers import Reply, read_choice, read_usage
from oni_jax.annotation.failures import ONLY_REASONING, RequestError, one_line, read_refusal
from oni_jax.annotation.prompts import Prompt, Turn, load_chat_template, render_chat
from oni_jax.annotation.request_fields import CONSTRAINTS as CONSTRAINTS
from oni_jax.annotation.request_fields import Form, first_form
from oni_jax.annotation.watch import Watch, reasoning_hint
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.types import Item

KEEPALIVE_SECS = 4.0  # servers close an idle connection after 5 s
MAX_DETAIL_CHARS = 300
MAX_ANSWER_BYTES_PER_CHOICE, MAX_ANSWER_BYTES = 1 << 17, 1 << 24
NO_ANSWERS: Mapping[Item, str] = types.MappingProxyType({})
# A dead peer (power, network) is detected within 20 s.
_TCP_OPTIONS = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}


class NoServer:
    """Stands in for a client where recorded answers are all that there is, and nothing is asked."""

    def __init__(self) -> None:
        self.events, self.tokens = Counter[str](), Counter[str]()

    async def __aenter__(self) -> "NoServer":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def print_line(line: str) -> None:
    """Prints what a client has to say about its server."""
    print(f"the LLM server: {line}", flush=True)


def make_client(
    config: AnnotationConfig,
    prompt: Prompt,
    say: Callable[[str], None] = print_line,
    needs_probability: bool = False,
) -> "Client | NoServer":
    """Makes the client of a server, if the settings name one. Raises UserError: see `Client`."""
    return Client(config, prompt, say, needs_probability) if config.llm_server_addr else NoServer()


class Client:
    """Asks about items at one server. Used as an asynchronous context manager, inside a running loop.

    Args:
        config: of the server.
        prompt: of what is asked.
        say: receives a line for each finding about the server, once.
        needs_probability: answers without log-probabilities are of no use: `ask` raises UserError.

    Raises:
        UserError: bad address, key, header, prompt file or chat template.
    """

    def __init__(
        self,
        config: AnnotationConfig,
        prompt: Prompt,
        say: Callable[[str], None] = print_line,
        needs_probability: bool = False,
    ):
        self._config, self._prompt = config, prompt
        self._chat = config.llm_api == "chat"
        self._url = endpoint_url(config, "chat/completions" if self._chat else "completions")
        headers, self._secrets = request_headers(config)
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **headers}
        self._chat_template = load_chat_template(config.llm_chat_template)
        one_word = config.llm_answer == "label" and bool(prompt.kind.choices)
        self._one_word, self._say = one_word, say
        self._form = first_form(config, prompt.kind.choices if one_word else ())
        self._form_proven = False
        self._watch = Watch(config, prompt.kind, one_word, say, needs_probability and one_word)
        self.events: Counter[str] = Counter()  # recoveries: choices reordered, fields dropped, stale connections
        self.tokens: Counter[str] = Counter()  # as the server counts: prompt_tokens, completion_tokens

    async def __aenter__(self) -> "Client":
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_record_reuse)
        total_secs = self._config.llm_timeout_secs
        timeout = aiohttp.ClientTimeout(total=total_secs, connect=min(CONNECT_TIMEOUT_SECS, 0.9 * total_secs))
        options: dict[str, Any] = {"headers": self._headers, "timeout": timeout, "cookie_jar": aiohttp.DummyCookieJar()}
        options["auto_decompress"] = False  # not requested, and could be a decompression bomb
        pool = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECS, socket_factory=_open_socket)
        fresh = aiohttp.TCPConnector(limit=0, force_close=True, socket_factory=_open_socket)
        self._session = aiohttp.ClientSession(connector=pool, trace_configs=[trace], **options)
        self._fresh_session = aiohttp.ClientSession(connector=fresh, **options)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._fresh_session.close()

    async def ask(self, items: Sequence[Item], first_answers: Mapping[Item, str] = NO_ANSWERS) -> list[Reply]:
        """Returns one reply per item, in order. More than one item only with the completions API.

        Args:
            first_answers: unreadable answers of items that are asked about again; they join the conversation.

        Raises:
            RequestError: the request failed, or the model only reasons.
            UserError: the server gives no log-probabilities, and they are needed.
        """
        replies = await self._replies([self._prompt.turns(item, first_answers.get(item, "")) for item in items])
        self._watch.see(replies, self._form.fields, self.events)
        return replies

    async def complete(self, conversation: Sequence[Turn]) -> Reply:
        """Returns the reply to a conversation. Raises RequestError: the request failed."""
        return (await self._replies([conversation]))[0]

    async def _replies(self, conversations: Sequence[Sequence[Turn]]) -> list[Reply]:
        form, refusal = self._form, ""
        while True:  # drops or renames what the server refuses
            try:
                replies = await self._request(conversations, form)
                break
            except RequestError as error:
                if error.name == ONLY_REASONING:
                    raise
                other = form.without_refused(error.status, error.text, may_guess=not self._form_proven)
                if other is None:
                    raise
                form, refusal = other, error.detail
        # Kept only now that a request has succeeded with it; what has worked before is tried again.
        if form != self._form and not self._form_proven:
            self.events["fields_dropped"] += len(self._form.fields) - len(form.fields)
            self._say(f"it is asked {self._form.changes(form)} from now on, since it refused: {refusal}")
            self._form = form
        self._form_proven = True
        return replies

    def _body(self, conversations: Sequence[Sequence[Turn]], form: Form) -> bytes:
        body: dict[str, Any] = {"model": self._config.llm_model, **form.fields}
        if self._chat and not form.has_system_turn:
            conversations = [without_system_turn(turns) for turns in conversations]
        if self._chat:
            body["messages"] = [{"role": role, "content": content} for role, content in conversations[0]]
        else:
            prompts = [render_chat(self._chat_template, turns) for turns in conversations]
            body["prompt"] = prompts if len(prompts) > 1 else prompts[0]
        return json.dumps(body).encode()

    async def _request(self, conversations: Sequence[Sequence[Turn]], form: Form) -> list[Reply]:
        body = self._body(conversations, form)
        max_bytes = min((1 + len(conversations)) * MAX_ANSWER_BYTES_PER_CHOICE, MAX_ANSWER_BYTES)
        reuse = types.SimpleNamespace(reused=False)
        try:
            raw = await self._post(self._session, body, max_bytes, reuse)
        except RequestError as error:
            # A stale pooled connection: the server never read the request, so retry on a new one.
            if error.name != "disconnected" or not reuse.reused:
                raise
            self.events["stale_connections"] += 1
            raw = await self._post(self._fresh_session, body, max_bytes, None)
        return self._read(raw, len(conversations))

    async def _post(self, session: aiohttp.ClientSession, body: bytes, max_bytes: int, reuse: object) -> bytes:
        """Posts a request; returns the body of a 200 answer, at most `max_bytes` long."""
        answered = False
        try:
            async with session.post(self._url, data=body, allow_redirects=False, trace_request_ctx=reuse) as response:
                answered = True
                raw = bytearray()
                async for chunk in response.content.iter_any():
                    raw += chunk
                    if len(raw) > max_bytes:
                        response.close()
                        raise RequestError("too_large", f"an answer of more than {max_bytes} bytes")
                if response.status != 200:
                    text = raw.decode("utf-8", "replace")
                    raise self._refusal(response.status, response.headers, text)
                return bytes(raw)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            detail = self.line(str(error).replace(" ssl:default", ""))
            raise RequestError("unreachable", detail, server_at_fault=True) from None
        except TimeoutError:
            name = "too_slow" if answered else "timed_out"
            raise RequestError(name, f"no complete answer within {self._config.llm_timeout_secs:g} s") from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise RequestError("disconnected", self.line(f"{type(error).__name__}: {error}")) from None
        except (aiohttp.ClientError, ValueError) as error:
            raise RequestError("bad_http", self.line(f"{type(error).__name__}: {error}")) from None

    def _refusal(self, status: int, headers: Mapping[str, str], text: str) -> RequestError:
        """Classifies an answer other than 200, by its whole text."""
        detail = self.line(f"{headers.get('Location', '')} {text}")
        error = read_refusal(status, headers, detail, self._config.llm_model, text, self._form.is_named_in(text))
        if error.name == ONLY_REASONING:
            error.detail = f"{reasoning_hint(self._one_word, '', is_cut_off=True)} ({detail})"
        return error

    def line(self, text: str) -> str:
        """Sanitises untrusted text to one short printable line, without the key."""
        return one_line(self.without_key(text), MAX_DETAIL_CHARS)

    def without_key(self, text: str) -> str:
        """Redacts the key and secret headers. To be called before truncation: a part of one would not be found."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _read(self, raw: bytes, num_choices: int) -> list[Reply]:
        """Parses an answer into exactly `num_choices` replies, sorted by index."""
        try:
            answer = json.loads(raw)
            choices = answer["choices"]
        except (ValueError, RecursionError, TypeError, LookupError):
            raise RequestError("broken_json", self.line(raw.decode("utf-8", "replace"))) from None
        if not isinstance(choices, list) or len(choices) != num_choices:
            got = len(choices) if isinstance(choices, list) else 0
            name = "too_many_choices" if got > num_choices else "too_few_choices"
            raise RequestError(name, f"{got} choices for {num_choices} prompts")
        if num_choices > 1:
            order: list[Any] = [choice.get("index") if isinstance(choice, dict) else None for choice in choices]
            if any(type(index) is not int for index in order) or sorted(order) != list(range(num_choices)):
                raise RequestError("bad_indices", "the choices' indices are not 0 ... N-1")
            if order != sorted(order):
                self.events["choices_reordered"] += 1
                choices = sorted(choices, key=lambda choice: choice["index"])
        usage, prompt = read_usage(answer), self._prompt
        self.tokens.update(usage)
        replies = [read_choice(choice, prompt.kind, prompt.answer_key, self._one_word) for choice in choices]
        return replies if num_choices > 1 else [replies[0]._replace(usage=usage)]


def without_system_turn(turns: Sequence[Turn]) -> Sequence[Turn]:
    """Returns a conversation whose first user's turn begins with the system's text."""
    (role, system), (_, user), *rest = turns
    return [("user", f"{system}\n\n{user}"), *rest] if role == "system" else turns


async def _record_reuse(session: aiohttp.ClientSession, context: types.SimpleNamespace, _: object) -> None:
    del session
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.reused = True


def _open_socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_OPTIONS.items():
        if hasattr(socket, name):  # not on every platform
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return opened
