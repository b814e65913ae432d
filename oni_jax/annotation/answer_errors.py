"""Errors inside answers of status 200: what gateways send in place of an answer, or in a choice."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from oni_jax.annotation.failures import (
    BAD_KEY,
    BALANCE_WORDS,
    ERROR_ANSWER,
    FILTER_STATUSES,
    FILTER_WORDS,
    MAX_DETAIL_CHARS,
    OVERLOADED,
    RequestError,
    read_refusal,
)

_OVERLOAD = re.compile(
    r"rate.?limit|too many requests|throttl|quota|overload|capacity|unavailable|insufficient_system", re.I
)
_FAILED = re.compile(
    r"error|abort|fail|cancel|time[d_ ]*out|overload|insufficient_system_resource", re.I
)  # as a finish
_FILTER_FINISHES = re.compile(
    r"content[_-]filter|safety|prohibited|blocklist|blocked|sensitive|guardrail|moderation|recitation|spii|refusal",
    re.I,
)
_STATUS_NAMES = ("code", "status", "statuscode", "httpstatus", "httpcode", "errorcode")
_STATUS_IN_TEXT = re.compile(r"(?:http|status|error|code)[ :]{1,3}([45][0-9][0-9])\b", re.I)
_ENVELOPE = {"choices", "usage", "id", "object", "created", "model", "system_fingerprint"}  # an answer's, empty or not
_MAX_DEPTH = 4


def read_error(
    answer: object,
    headers: Mapping[str, str],
    line: Callable[[str], str],
    model: str,
    names_field: Callable[[str], bool],
) -> RequestError | None:
    """Classifies an error in an answer of status 200, or in one of its choices, as the status that it names.

    Args:
        answer: the parsed answer; some gateways send a list of one.
        headers: of the answer.
        line: sanitises text to one line.
        model: the one requested.
        names_field: whether a text names a field of the request.

    Returns:
        None: there is none.
    """
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if not isinstance(answer, Mapping):
        return None
    choices = answer.get("choices")
    errors = [answer.get("error"), *(map(_choice_error, choices) if isinstance(choices, list) else ())]
    if not choices and answer.keys() - _ENVELOPE:
        errors.append(answer)
    error = next(filter(None, errors), None)
    if error is None:
        return None
    text = line(json.dumps(error))
    status = next(_statuses_named(error), 0) or _status_of_words(text) or 400 * names_field(text)
    if status:
        return read_refusal(status, headers, text, model, names_field(text))
    detail = f"an error in place of an answer: {text}"[:MAX_DETAIL_CHARS]
    return RequestError(ERROR_ANSWER, detail, 200, server_at_fault=True)


def _status_of_words(text: str) -> int:
    """Returns the HTTP status that the words of an error amount to; 0: none."""
    if FILTER_WORDS.search(text):
        return FILTER_STATUSES[0]
    if _OVERLOAD.search(text) or BALANCE_WORDS.search(text):
        return OVERLOADED[0]
    said = _STATUS_IN_TEXT.search(text)
    return int(said[1]) if said else 401 if BAD_KEY.search(text) else 0


def _choice_error(choice: object) -> object:
    """Returns the error in a choice, or in its message; None: there is none."""
    if not isinstance(choice, Mapping):
        return None
    message = choice.get("message")
    error = choice.get("error") or (message.get("error") if isinstance(message, Mapping) else None)
    finish = _finish(choice)
    return error or (finish if _FAILED.search(finish) and not is_filtered(choice) else None)


def is_filtered(choice: Mapping[str, Any]) -> bool:
    """Returns whether a content filter, or the model's refusal, has removed a choice, or a part of it."""
    message = choice.get("message")
    refused = isinstance(message, Mapping) and message.get("refusal") and not message.get("content")
    found = json.dumps(choice.get("content_filter_results"), default=str)
    return bool(refused or '"filtered": true' in found or _FILTER_FINISHES.search(_finish(choice)))


def is_cut_off(choice: Mapping[str, Any]) -> bool:
    """Returns whether a choice ended at its limit of tokens."""
    return bool(re.search(r"length|max_\w*tokens", _finish(choice), re.I))


def _finish(choice: Mapping[str, Any]) -> str:
    """Returns a choice's reason to end: the protocol's, and the model's, which gateways add."""
    reasons = (choice.get("finish_reason"), choice.get("native_finish_reason"))
    return " ".join(reason for reason in reasons if isinstance(reason, str))


def _statuses_named(error: object, depth: int = 0) -> Iterator[int]:
    """Yields the HTTP statuses that an error names, those of nested errors last."""
    if not isinstance(error, Mapping | list) or depth > _MAX_DEPTH:
        return
    fields = error if isinstance(error, Mapping) else dict(enumerate(error))
    for name, value in fields.items():
        found = re.fullmatch(r"([345][0-9][0-9])(\.0)?", str(value))
        if found and str(name).replace("_", "").lower() in _STATUS_NAMES:
            yield int(found[1])
    for value in fields.values():
        yield from _statuses_named(value, depth + 1)
