"""Reading a server's answer: its text, and its token counts.

No function raises, whatever a server sends.
"""

import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from oni_jax.annotation.answer_errors import is_filtered
from oni_jax.annotation.queries.base import QueryKind

MAX_TEXT_CHARS = 100_000
TOKEN_COUNTS = ("prompt_tokens", "completion_tokens")  # of `usage`, which not every server sends
MAX_TOKENS = 1 << 32  # of one request
_THINKING, _THOUGHT = "<think>", "</think>"  # around a model's reasoning, where its server leaves it in the text


class Reply(NamedTuple):
    """One choice of a server's answer."""

    text: str
    answer: bytes | None  # as the kind of query encodes it; None: unreadable
    usage: Mapping[str, int] = types.MappingProxyType({})  # TOKEN_COUNTS that a request of one prompt reports
    filtered: bool = False  # a content filter has removed it, or a part of it


def read_choice(choice: object, kind: QueryKind, answer_key: str, one_word: bool = False) -> Reply:
    """Reads one element of `choices`, of either endpoint, in answer to a prompt of this kind and answer key.

    one_word: a choice alone was asked for, see `QueryKind.read_word`.
    """
    fields = choice if isinstance(choice, Mapping) else {}
    text = _text(fields)
    if is_filtered(fields):
        return Reply(text, None, filtered=True)
    is_cut_off = fields.get("finish_reason") == "length"
    read = kind.read_word if one_word else kind.read_cut_off if is_cut_off else kind.read
    answer = read(text, fields.get("logprobs"), answer_key)
    # An answer that `is_answer` rejects would be refused when it is read from the store.
    valid = type(answer) is bytes and len(answer) <= MAX_TEXT_CHARS and kind.is_answer(answer)
    return Reply(text, answer if valid else None)


def read_usage(answer: Mapping[str, Any]) -> dict[str, int]:
    """Reads the token counts (TOKEN_COUNTS) that a server's answer reports."""
    usage = answer.get("usage")
    counts = {name: usage.get(name) for name in TOKEN_COUNTS} if isinstance(usage, Mapping) else {}
    return {name: count for name, count in counts.items() if type(count) is int and 0 <= count <= MAX_TOKENS}


def _text(fields: Mapping[str, Any]) -> str:
    """Returns the text of a completion, or of a chat message (a string, or a list of parts), after its reasoning.

    Reasoning that was cut off has no answer after it. Lone surrogates, which neither UTF-8 nor SQLite holds, are
    replaced.
    """
    message = fields.get("message")
    content = message.get("content") if isinstance(message, Mapping) else fields.get("text")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, Mapping))
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        return ""
    content = content[:MAX_TEXT_CHARS].rpartition(_THOUGHT)[2]
    if content.lstrip().startswith(_THINKING):
        return ""
    return content.encode("utf-8", "replace").decode()
