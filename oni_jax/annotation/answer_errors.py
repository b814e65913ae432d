"""Errors inside answers of status 200: what gateways send in place of an answer, or in a choice."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from oni_jax.annotation.failures import (
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
_FAILED = re.compile(r"error|abort|insufficient_system_resource", re.I)  # as a finish reason
_FILTER_FINISHES = re.compile(r"content_filter|safety|prohibited_content|blocklist|sensitive|guardrail", re.I)
_STATUS_NAMES = ("code", "status", "status_code", "http_status", "error_code")


def read_error(
    answer: Mapping[str, Any],
    headers: Mapping[str, str],
    line: Callable[[str], str],
    model: str,
    names_field: Callable[[str], bool],
) -> RequestError | None:
    """Classifies an error in an answer of status 200, or in one of its choices, as the status that it names.

    Args:
        answer: the parsed answer.
        headers: of the answer.
        line: sanitises text to one line.
        model: the one requested.
        names_field: whether a text names a field of the request.

    Returns:
        None: there is none.
    """
    choices = answer.get("choices")
    errors = [answer.get("error"), *(map(_choice_error, choices) if isinstance(choices, list) else ())]
    if not choices and ("code" in answer or "message" in answer or "detail" in answer):
        errors.append(answer)
    error = next(filter(None, errors), None)
    if error is None:
        return None
    text, status = line(json.dumps(error)), _status_named(error)
    if not status and FILTER_WORDS.search(text):
        status = FILTER_STATUSES[0]
    if not status and (_OVERLOAD.search(text) or BALANCE_WORDS.search(text)):
        status = OVERLOADED[0]
    if status:
        return read_refusal(status, headers, text, model, names_field(text))
    detail = f"an error in place of an answer: {text}"[:MAX_DETAIL_CHARS]
    return RequestError(ERROR_ANSWER, detail, 200, server_at_fault=True)


def _choice_error(choice: object) -> object:
    """Returns the error in a choice; None: there is none."""
    if not isinstance(choice, Mapping):
        return None
    finish = choice.get("finish_reason")
    failed = isinstance(finish, str) and not is_filtered(choice) and _FAILED.search(finish)
    return choice.get("error") or (finish if failed else None)


def is_filtered(choice: Mapping[str, Any]) -> bool:
    """Returns whether a content filter has removed a choice, or a part of it."""
    finish = choice.get("finish_reason")
    return isinstance(finish, str) and bool(_FILTER_FINISHES.search(finish))


def _status_named(error: object) -> int:
    """Returns the HTTP status that an error names; 0: none."""
    found = [error.get(name) for name in _STATUS_NAMES] if isinstance(error, Mapping) else []
    statuses = [int(str(code)) for code in found if re.fullmatch("[345][0-9][0-9]", str(code))]
    return statuses[0] if statuses else 0
