"""An asynchronous client of OpenAI-compatible servers of one model: one reply for each item of a request.

A failed request is a RequestError with a name of its own (see `failures`). Retries, splitting and backoff are the
labeller's part.
"""

import json
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oni_jax.annotation.address import api_key_header, routes_to
from oni_jax.annotation.answer_errors import read_error
from oni_jax.annotation.answers import Reply, read_choice, read_usage
from oni_jax.annotation.event_stream import is_stream, read_stream
from oni_jax.annotation.failures import FILTERED, RequestError
from oni_jax.annotation.prompts import Prompt, Turn, load_chat_template, render_chat
from oni_jax.annotation.servers import Servers
from oni_jax.annotation.transport import Transport
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.types import Item

MAX_LABEL_TOKENS = 8  # one token as a rule; byte-level models and JSON quotes need more
MAX_ANSWER_BYTES_PER_CHOICE, MAX_ANSWER_BYTES = 1 << 17, 1 << 24
# Fields without which a request asks for something else: only an error that says so drops them.
_REQUIRED = ("temperature", "max_tokens", "max_completion_tokens")
_NUM_TOP_LOGPROBS = {"chat": 20, "completions": 5}  # the protocol's bounds
NO_HEADERS: Mapping[str, str] = types.MappingProxyType({})
NO_ANSWERS: Mapping[Item, str] = types.MappingProxyType({})

# No standard has constrained decoding: each server has fields of its own.
CONSTRAINTS: Mapping[str, Callable[[Sequence[str]], dict[str, Any]]] = {
    "none": lambda labels: {},
    "vllm": lambda labels: {"structured_outputs": {"choice": list(labels)}},
    "sglang": lambda labels: {"regex": f"({'|'.join(labels)})"},
    # Under a grammar the plain log-probabilities are still those of the unrestricted model.
    "llamacpp": lambda labels: {
        "grammar": "root ::= " + " | ".join(f'"{label}"' for label in labels),
        "post_sampling_probs": True,
    },
    "json_schema": lambda labels: {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "label", "strict": True, "schema": {"type": "string", "enum": list(labels)}},
        }
    },
}


class NoServer:
    """Stands in for a client where recorded answers are all that there is, and nothing is asked."""

    def __init__(self) -> None:
        self.events, self.tokens = Counter[str](), Counter[str]()
        self.servers = Servers(())

    async def __aenter__(self) -> "NoServer":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def make_client(config: AnnotationConfig, prompt: Prompt) -> "Client | NoServer":
    """Makes the client of a server, if the settings name one. Raises UserError: see `Client`."""
    return Client(config, prompt) if config.llm_server_addr else NoServer()


class Client:
    """Asks about items. Used as an asynchronous context manager, inside a running loop.

    Raises:
        UserError: bad address, proxy, key, prompt file or chat template.
    """

    def __init__(self, config: AnnotationConfig, prompt: Prompt):
        self._config, self._prompt = config, prompt
        self._chat = config.llm_api == "chat"
        key_header = api_key_header(config)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **key_header}
        key = "".join(key_header.values()).removeprefix("Bearer ")
        self._chat_template = load_chat_template(config.llm_chat_template)
        self._fields = self._first_fields()
        self._fields_proven = False
        self.events: Counter[str] = Counter()  # recoveries: choices reordered, fields dropped, stale connections
        self.tokens: Counter[str] = Counter()  # as the server counts: prompt_tokens, completion_tokens
        routes = routes_to(config, "chat/completions" if self._chat else "completions")
        self._transport = Transport(config, routes, headers, key, self.events)
        self.servers = self._transport.servers
        self.line, self.without_key = self._transport.line, self._transport.without_key

    async def __aenter__(self) -> "Client":
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.__aexit__()

    async def ask(self, items: Sequence[Item], first_answers: Mapping[Item, str] = NO_ANSWERS) -> list[Reply]:
        """Returns one reply per item, in order. More than one item only with the completions API.

        Args:
            first_answers: unreadable answers of items that are asked about again; they join the conversation.

        Raises:
            RequestError: the request failed.
        """
        return await self._replies([self._prompt.turns(item, first_answers.get(item, "")) for item in items])

    async def complete(self, conversation: Sequence[Turn]) -> Reply:
        """Returns the reply to a conversation. Raises RequestError: the request failed."""
        return (await self._replies([conversation]))[0]

    async def _replies(self, conversations: Sequence[Sequence[Turn]]) -> list[Reply]:
        fields = self._fields
        while True:  # drops or renames the fields that the server refuses
            try:
                replies = await self._request(conversations, fields)
                break
            except RequestError as error:
                others = self._without_refused(fields, error)
                if others is None:
                    raise
                fields = others
        if fields != self._fields:  # kept only now that a request has succeeded with them
            self.events["fields_dropped"] += len(self._fields) - len(fields)
            self._fields = fields
        self._fields_proven = True
        return replies

    def _without_refused(self, fields: Mapping[str, Any], error: RequestError) -> dict[str, Any] | None:
        """The fields to retry with: without those that the error names, or without the optional ones; `max_tokens` is
        renamed. None: the fields are not at fault."""
        if self._fields_proven or error.name == FILTERED or error.status not in (400, 422, 500):
            return None
        if "support" in error.detail:
            if "max_tokens" in fields and "max_completion_tokens" in error.detail:  # OpenAI, since 2024
                return {("max_completion_tokens" if n == "max_tokens" else n): value for n, value in fields.items()}
            if "temperature" in fields and "temperature" in error.detail:
                return {name: value for name, value in fields.items() if name != "temperature"}
        required = {name: value for name, value in fields.items() if name in _REQUIRED}
        rest = {name: value for name, value in fields.items() if name in required or name not in error.detail}
        if len(rest) < len(fields):
            return rest
        return None if error.status == 500 or fields == required else required

    def _first_fields(self) -> dict[str, Any]:
        """Fields that a server may refuse."""
        config = self._config
        fields = {"temperature": config.llm_temperature, "max_tokens": config.llm_max_tokens}
        if not self._wants_label():
            return fields
        fields["max_tokens"] = min(config.llm_max_tokens, MAX_LABEL_TOKENS)
        num_top = _NUM_TOP_LOGPROBS[config.llm_api]
        logprobs = {"logprobs": True, "top_logprobs": num_top} if self._chat else {"logprobs": num_top}
        return {**fields, **logprobs, **CONSTRAINTS[config.llm_constraint](self._prompt.kind.choices)}

    def _wants_label(self) -> bool:
        return self._config.llm_answer == "label" and bool(self._prompt.kind.choices)

    def _body(self, conversations: Sequence[Sequence[Turn]], fields: Mapping[str, Any]) -> bytes:
        body: dict[str, Any] = {"model": self._config.llm_model, **fields}
        if self._chat:
            body["messages"] = [{"role": role, "content": content} for role, content in conversations[0]]
        else:
            prompts = [render_chat(self._chat_template, turns) for turns in conversations]
            body["prompt"] = prompts if len(prompts) > 1 else prompts[0]
        return json.dumps(body).encode()

    async def _request(self, conversations: Sequence[Sequence[Turn]], fields: Mapping[str, Any]) -> list[Reply]:
        body, num_choices = self._body(conversations, fields), len(conversations)
        max_bytes = min((1 + num_choices) * MAX_ANSWER_BYTES_PER_CHOICE, MAX_ANSWER_BYTES)
        return await self._transport.ask(body, max_bytes, lambda raw, headers: self._read(raw, num_choices, headers))

    def _error_in(self, answer: Mapping[str, Any], headers: Mapping[str, str]) -> RequestError | None:
        return read_error(answer, headers, self._transport.text, self._config.llm_model)

    def _read(self, raw: bytes, num_choices: int, headers: Mapping[str, str] = NO_HEADERS) -> list[Reply]:
        """Parses an answer into exactly `num_choices` replies, sorted by index."""
        try:
            answer = read_stream(raw) if is_stream(raw) else json.loads(raw)
            if isinstance(answer, dict) and (error := self._error_in(answer, headers)):
                raise error
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
        one_word = self._wants_label()
        replies = [read_choice(choice, prompt.kind, prompt.answer_key, one_word) for choice in choices]
        return replies if num_choices > 1 else [replies[0]._replace(usage=usage)]
