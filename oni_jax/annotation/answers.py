"""Reading a server's answer: its text, and how many tokens it took.

Nothing here raises, whatever a server sends.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from oni_jax.annotation.queries.base import QueryKind

MAX_TEXT_CHARS = 100_000
TOKEN_COUNTS = ("prompt_tokens", "completion_tokens")  # of `usage`, which not every server sends
MAX_TOKENS = 1 << 32  # of one request


class Reply(NamedTuple):
    """One choice of a server's answer."""

    text: str
    answer: bytes | None  # as the query's kind keeps it; None: unreadable


def read_choice(choice: object, kind: QueryKind, answer_key: str) -> Reply:
    """One element of `choices`, of either endpoint, in answer to a prompt of this kind and answer key."""
    fields = choice if isinstance(choice, Mapping) else {}
    text = _text(fields)
    answer = kind.read(text, fields.get("logprobs"), answer_key)
    # What a kind would not take from the store must never get there.
    kept = type(answer) is bytes and len(answer) <= MAX_TEXT_CHARS and kind.is_answer(answer)
    return Reply(text, answer if kept else None)


def read_usage(answer: Mapping[str, Any]) -> dict[str, int]:
    """Tokens of a request by TOKEN_COUNTS, as far as the server's answer counts them."""
    usage = answer.get("usage")
    counts = {name: usage.get(name) for name in TOKEN_COUNTS} if isinstance(usage, Mapping) else {}
    return {name: count for name, count in counts.items() if type(count) is int and 0 <= count <= MAX_TOKENS}


def _text(fields: Mapping[str, Any]) -> str:
    """The text of a completion, or of a chat message (a string, or a list of parts)."""
    message = fields.get("message")
    content = message.get("content") if isinstance(message, Mapping) else fields.get("text")
    if isinstance(content, list):
        words = (part.get("text") for part in content if isinstance(part, Mapping))
        content = "".join(word for word in words if isinstance(word, str))
    return content[:MAX_TEXT_CHARS] if isinstance(content, str) else ""
