"""Reading a server's answer: its text, and its token counts.

No function raises, whatever a server sends. A plugin's kind of query may: that is the plugin's fault.
"""

import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from oni_jax.annotation import answer_errors
from oni_jax.annotation.failures import FILTERED, KIND_RAISES, ONLY_REASONING
from oni_jax.annotation.first_turn import first_turn, split_reasoning
from oni_jax.annotation.probabilities import has_probabilities
from oni_jax.annotation.queries.base import QueryKind, blaming
from oni_jax.settings.fields import UserError

MAX_TEXT_CHARS = 100_000
TOKEN_COUNTS = ("prompt_tokens", "completion_tokens")  # fields of `usage`, which not every server sends
MAX_TOKENS = 1 << 32  # bound on one request's tokens
_REASONING = ("reasoning", "reasoning_content", "reasoning_details", "thinking", "thoughts")  # fields of a message


class Reply(NamedTuple):
    """One choice of a server's answer."""

    text: str  # the answer without reasoning, and without turns that the model made up
    answer: bytes | None  # as the kind of query encodes it; None: unreadable
    usage: Mapping[str, int] = types.MappingProxyType({})  # TOKEN_COUNTS that a request of one prompt reports
    reasons: bool = False  # the model's reasoning is shown
    reasoning_field: str = ""  # its field, such as `reasoning_content`; empty: the text, if anything
    is_cut_off: bool = False  # it ended at its limit of tokens
    has_logprobs: bool = False
    filtered: bool = False  # a content filter has removed it, or a part of it
    raised: str = ""  # the error that the kind of query raised as it read it
    is_partial: bool = False  # it answers under some of the goals that it was asked about

    @property
    def failure(self) -> str:
        """The name that an unreadable answer is counted under; empty: it is readable."""
        if self.answer is not None:
            return "partial" if self.is_partial else ""
        if self.filtered or self.raised:
            return FILTERED if self.filtered else KIND_RAISES
        if self.text.strip():
            return "unreadable"
        return ONLY_REASONING if self.reasons or self.is_cut_off else "empty_text"


def read_choice(choice: object, kind: QueryKind, answer_key: str, one_word: bool = False) -> Reply:
    """Reads one element of `choices`, of either endpoint, in answer to a prompt of this kind and answer key.

    one_word: a choice alone was asked for, see `QueryKind.read_word`.

    Raises:
        UserError: the kind's code failed.
    """
    fields = choice if isinstance(choice, Mapping) else {}
    whole, field = _content(fields)
    text, thought = split_reasoning(whole)
    text = first_turn(text, kind.openings)
    if answer_errors.is_filtered(fields):
        return Reply(text, None, filtered=True)
    is_cut_off = answer_errors.is_cut_off(fields)
    if one_word:
        read = kind.read_word_cut_off if is_cut_off else kind.read_word
    else:
        read = kind.read_cut_off if is_cut_off else kind.read
    # Words of the reasoning may look like labels: their probabilities are those of no answer.
    logprobs = None if thought.strip() else fields.get("logprobs")
    try:
        with blaming(kind, "read"):
            answer = read(text, logprobs, answer_key)
        # An answer that `is_answer` rejects would be refused when it is read from the store.
        with blaming(kind, "is_answer"):
            valid = type(answer) is bytes and len(answer) <= MAX_TEXT_CHARS and kind.is_answer(answer)
        with blaming(kind, "split"):
            is_partial = bool(valid and answer and None in kind.split(answer))
        with blaming(kind, "describe"):  # it will be shown
            _ = valid and kind.describe(answer)
    except UserError as error:
        return Reply(text, None, raised=str(error))
    return Reply(
        text,
        answer if valid else None,
        reasons=bool(field or thought.strip()),
        reasoning_field=field,
        is_cut_off=is_cut_off,
        has_logprobs=has_probabilities(logprobs),
        is_partial=is_partial,
    )


def read_usage(answer: Mapping[str, Any]) -> dict[str, int]:
    """Reads the token counts (TOKEN_COUNTS) that a server's answer reports."""
    usage = answer.get("usage")
    counts = {name: usage.get(name) for name in TOKEN_COUNTS} if isinstance(usage, Mapping) else {}
    return {name: count for name, count in counts.items() if type(count) is int and 0 <= count <= MAX_TOKENS}


def _content(fields: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the text of a completion or chat message (a string, or a list of parts), and its field of reasoning.

    Lone surrogates, which neither UTF-8 nor SQLite holds, are replaced.
    """
    message = fields.get("message")
    holder = message if isinstance(message, Mapping) else fields
    content = message.get("content") if isinstance(message, Mapping) else fields.get("text")
    reasoning = next((f"`{name}`" for name in _REASONING if holder.get(name)), "")
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, Mapping)]
        of_text = [part for part in parts if part.get("type", "text") in ("text", "output_text")]
        reasoning = reasoning or ("a part of the content" if len(of_text) < len(parts) else "")
        content = "".join(text for part in of_text if isinstance(text := part.get("text"), str))
    if not isinstance(content, str):
        content = ""
    return content[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode(), reasoning
