"""An asynchronous client of OpenAI-compatible servers of one model: one reply for each item of a request, or one
vector for each text.

A failed request is a RequestError with a name (see `failures`). Retries, splitting and backoff are the
asker's part.
"""

import functools
import json
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from oni_jax.annotation.address import request_headers, routes_to
from oni_jax.annotation.answer_errors import read_error
from oni_jax.annotation.answers import Reply, read_choice, read_usage
from oni_jax.annotation.event_stream import is_stream, read_stream
from oni_jax.annotation.failures import KIND_RAISES, ONLY_REASONING, RequestError
from oni_jax.annotation.prompts import Prompt, Turn, load_chat_template, render_chat
from oni_jax.annotation.request_fields import CONSTRAINTS as CONSTRAINTS
from oni_jax.annotation.request_fields import Form, first_form
from oni_jax.annotation.servers import Servers
from oni_jax.annotation.transport import Transport
from oni_jax.annotation.watch import OF_SERVER, Watch, reasoning_hint
from oni_jax.host.reporting import report
from oni_jax.settings.annotation import LABEL, AnnotationConfig
from oni_jax.settings.extra_fields import extra_body
from oni_jax.settings.fields import UserError
from oni_jax.types import Item

MAX_RAISED_CHARS, MAX_VECTORS_BYTES = 600, 1 << 26
MAX_ANSWER_BYTES_PER_CHOICE, MAX_ANSWER_BYTES = 1 << 17, 1 << 24
NO_HEADERS: Mapping[str, str] = types.MappingProxyType({})
NO_ANSWERS: Mapping[Item, str] = types.MappingProxyType({})
T = TypeVar("T")


class NoServer:
    """Stands in for a client where recorded answers are all that there is, and nothing is asked."""

    def __init__(self) -> None:
        self.events, self.tokens = Counter[str](), Counter[str]()
        self.servers = Servers(())

    async def __aenter__(self) -> "NoServer":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def ask(self, items: Sequence[Item], first_answers: Mapping[Item, str]) -> list[Reply]:
        raise RequestError("unreachable", "no server is named", server_at_fault=True)

    line = without_key = staticmethod(str)


def make_client(
    config: AnnotationConfig,
    prompt: Prompt,
    say: Callable[[str], None] = report,
    needs_probability: bool = False,
) -> "Client | NoServer":
    """Makes the client of a server, if the settings name one. Raises UserError: see `Client`."""
    return Client(config, prompt, say, needs_probability) if config.llm_server_addr else NoServer()


class Client:
    """Asks about items, or embeds texts. Used as an asynchronous context manager, inside a running loop.

    Args:
        config: settings of the server.
        prompt: the question's; None: it embeds texts, and asks nothing.
        say: receives a line for each finding about the server, once.
        needs_probability: answers without log-probabilities are of no use: `ask` raises UserError.

    Raises:
        UserError: bad address, proxy, key, header, prompt file or chat template.
    """

    def __init__(
        self,
        config: AnnotationConfig,
        prompt: Prompt | None = None,
        say: Callable[[str], None] = report,
        needs_probability: bool = False,
    ):
        self._config, self._asked, self._say = config, prompt, say
        self._chat = config.llm_api == "chat"
        headers, secrets = request_headers(config)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **headers}
        self._chat_template = load_chat_template(config.llm_chat_template)
        choices = prompt.kind.choices if prompt and config.llm_answer == LABEL else ()
        self._one_word = bool(choices)
        if prompt and prompt.kind.goals:
            self._form = first_form(config, prompt.kind.kept_as.choices, prompt.kind.goals)
        else:
            self._form = first_form(config, choices) if prompt else Form(extra_body(config.llm_extra_body), False)
        self._form_proven = False
        self._watch = Watch(config, choices, say, needs_probability and self._one_word)
        self.events: Counter[str] = Counter()  # recoveries: choices reordered, fields dropped, stale connections
        self.tokens: Counter[str] = Counter()  # as the server counts: prompt_tokens, completion_tokens
        endpoint = "embeddings" if not prompt else "chat/completions" if self._chat else "completions"
        self._transport = Transport(
            config, routes_to(config, endpoint), headers, secrets, self.events, self._names_field
        )
        self.servers = self._transport.servers
        self.line, self.without_key = self._transport.line, self._transport.without_key

    async def __aenter__(self) -> "Client":
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.__aexit__()

    @property
    def _prompt(self) -> Prompt:
        assert self._asked, "a client without a prompt only embeds"
        return self._asked

    async def ask(self, items: Sequence[Item], first_answers: Mapping[Item, str] = NO_ANSWERS) -> list[Reply]:
        """Returns one reply per item, in order. More than one item only with the completions API.

        Args:
            first_answers: unreadable answers of items that are asked about again; they join the conversation.

        Raises:
            RequestError: the request failed, the model only reasons, or the kind of query can't render an item.
            UserError: the server gives no log-probabilities, and they are needed; or the kind of query raises errors
                alone.
        """
        try:
            conversations = [self._prompt.turns(item, first_answers.get(item, "")) for item in items]
        except UserError as error:
            line = self.line(str(error), MAX_RAISED_CHARS)
            self._watch.see_raised(line)
            raise RequestError(KIND_RAISES, line) from None
        replies = await self._replies(conversations)
        self._watch.see(replies, self._form.fields, self.events)
        return replies

    async def complete(self, conversation: Sequence[Turn]) -> Reply:
        """Returns the reply to a conversation. Raises RequestError: the request failed."""
        return (await self._replies([conversation]))[0]

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Returns texts' vectors, [R, D] float64, of any length. Raises RequestError: the request failed."""

        def request(form: Form) -> Awaitable[np.ndarray]:
            body = {"model": self._config.llm_model, "input": list(texts), **form.fields}
            read = functools.partial(self._vectors, len(texts))
            return self._transport.ask(json.dumps(body).encode(), MAX_VECTORS_BYTES, read)

        return await self._without_refused(request)

    async def _replies(self, conversations: Sequence[Sequence[Turn]]) -> list[Reply]:
        return await self._without_refused(lambda form: self._request(conversations, form))

    async def _without_refused(self, request: Callable[[Form], Awaitable[T]]) -> T:
        """Makes a request; retries without the fields that the server refuses, or renames them. Raises RequestError."""
        form, refusal = self._form, ""
        while True:
            try:
                answer = await request(form)
                break
            except RequestError as error:
                if not error.is_of_the_fields:
                    raise
                other = form.without_refused(error.status, error.text, may_guess=not self._form_proven)
                if other is None:
                    raise
                form, refusal = other, error.detail
        # Kept only now that a request has succeeded with it; what has worked before is tried again.
        if form != self._form and not self._form_proven:
            self.events["fields_dropped"] += len(self._form.fields) - len(form.fields)
            self._say(f"{OF_SERVER}it is asked {self._form.changes(form)} from now on, since it refused: {refusal}")
            self._form = form
        self._form_proven = True
        return answer

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
        body, num_choices = self._body(conversations, form), len(conversations)
        max_bytes = min((1 + num_choices) * MAX_ANSWER_BYTES_PER_CHOICE, MAX_ANSWER_BYTES)
        try:
            return await self._transport.ask(
                body, max_bytes, lambda raw, headers: self._read(raw, num_choices, headers)
            )
        except RequestError as error:
            if error.name == ONLY_REASONING:
                error.detail = f"{reasoning_hint(self._one_word, '', is_cut_off=True)} ({error.detail})"
            raise

    def _names_field(self, text: str) -> bool:
        return self._form.is_named_in(text)

    def _parsed(self, raw: bytes, field: str, headers: Mapping[str, str]) -> dict[str, Any]:
        """Parses an answer that has a field. Raises RequestError: it is none, or an error in place of one."""
        try:
            answer = read_stream(raw) if is_stream(raw) else json.loads(raw)
            has_vectors = field == "data" and isinstance(answer, dict) and field in answer and not answer.get("error")
            known = self._transport.text, self._config.llm_model, self._names_field
            if not has_vectors and (error := read_error(answer, headers, *known)):
                raise error
            answer[field]
        except (ValueError, RecursionError, TypeError, LookupError):
            raise RequestError("broken_json", self.line(raw.decode("utf-8", "replace"))) from None
        return answer

    def _vectors(self, num_texts: int, raw: bytes, headers: Mapping[str, str]) -> np.ndarray:
        """Parses an answer into exactly `num_texts` vectors, sorted by index."""
        rows = self._parsed(raw, "data", headers)["data"]
        try:
            rows = sorted(rows, key=lambda row: row["index"])
            if [row["index"] for row in rows] != list(range(num_texts)):
                raise ValueError(f"{len(rows)} vectors for {num_texts} texts")
            vectors = np.array([row["embedding"] for row in rows], np.float64)
            if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():
                raise ValueError("vectors that are not of finite numbers")
            if not vectors.any(axis=1).all():
                raise ValueError("a vector of zeros, which has no direction")
            return vectors
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            raise RequestError("bad_vectors", self.line(f"{type(error).__name__}: {error}")) from None

    def _read(self, raw: bytes, num_choices: int, headers: Mapping[str, str] = NO_HEADERS) -> list[Reply]:
        """Parses an answer into exactly `num_choices` replies, sorted by index."""
        answer = self._parsed(raw, "choices", headers)
        choices = answer["choices"]
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
        replies = [x._replace(raised=self.line(x.raised, MAX_RAISED_CHARS)) if x.raised else x for x in replies]
        return replies if num_choices > 1 else [replies[0]._replace(usage=usage)]


def without_system_turn(turns: Sequence[Turn]) -> Sequence[Turn]:
    """Returns a conversation whose first user's turn begins with the system's text."""
    (role, system), (_, user), *rest = turns
    return [("user", f"{system}\n\n{user}"), *rest] if role == "system" else turns
