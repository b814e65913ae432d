"""Fields and headers that a user adds to every request: a JSON object each."""

import json
import re
from collections.abc import Mapping
from typing import Any

from oni_jax.settings.fields import UserError

MAX_CHARS = 1 << 16
_OURS = {"messages": "the prompt", "prompt": "the prompt", "model": "--llm_model", "n": "one answer for each prompt"}


def extra_body(text: str) -> dict[str, Any]:
    """Parses --llm_extra_body. Raises UserError: no JSON object, or a field that would break the reading of answers."""
    fields = _object("llm_extra_body", text, '{"enable_thinking": false}')
    for name in fields.keys() & _OURS.keys():
        raise UserError(f"--llm_extra_body: `{name}` is set by {_OURS[name]}; leave it out")
    if fields.get("stream"):
        raise UserError("--llm_extra_body: `stream` is not read; leave it out, or set it to false")
    return fields


def extra_headers(text: str) -> Mapping[str, str]:
    """Parses --llm_extra_headers; values are as given. Raises UserError, whose text holds no value."""
    headers = _object("llm_extra_headers", text, '{"X-Title": "oni", "X-Key": "env:NAME"}')
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", name):
            raise UserError(f"--llm_extra_headers: {name!a:.60} is no name of a header")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise UserError(f"--llm_extra_headers: the value of {name} must be a text of printable ASCII, or env:NAME")
    return headers


def _object(flag: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or len(text) > MAX_CHARS:
        raise UserError(f"--{flag}: must be a JSON object, such as '{example}'")
    return found
