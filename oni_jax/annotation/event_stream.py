"""Reading an event stream, which some servers send though none was asked for, as the one answer that it adds up to."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

MAX_STREAM_BYTES = 1 << 22  # bytes of one choice: each token comes in a separate event
_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
_ADDED = {"delta": "message", "message": "message", "text": "text", "logprobs": "logprobs"}


def is_stream(raw: bytes) -> bool:
    return raw[:100].lstrip(b"\xef\xbb\xbf \r\n").startswith(_STARTS)


def read_stream(raw: bytes) -> dict[str, Any]:
    """Returns the answer that the events add up to; a choice that was not finished counts as cut off.

    Raises:
        ValueError: an event is no JSON object.
        RecursionError: it is nested too deep.
    """
    choices: dict[Any, dict[str, Any]] = {}
    answer: dict[str, Any] = {}
    is_done = False
    for name, data in _events(raw.decode("utf-8-sig", "replace")):
        if data == "[DONE]":
            is_done = True
            break
        event = {"error": _value(data)} if name == "error" else json.loads(data)
        if not isinstance(event, Mapping):
            raise ValueError("an event that is no object")
        answer |= {name: value for name, value in event.items() if name != "choices" and value}
        parts = event.get("choices")
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, Mapping):
                index = part.get("index", 0)
                _add(choices.setdefault(str(index), {"index": index}), part)
    for choice in choices.values():
        if not is_done and not choice.get("finish_reason"):
            choice["finish_reason"] = "length"
    return {**answer, "choices": list(choices.values())}


def _events(text: str) -> Iterator[tuple[str, str]]:
    """Yields the name of each event, if it has one, and its data."""
    name, data = "", list[str]()
    for line in [*text.splitlines(), ""]:
        field, _, value = line.partition(":")
        if field == "event":
            name = value.strip()
        elif field == "data":
            data.append(value.strip())
        elif line.startswith("{"):  # an answer in one piece, after comments
            data.append(line)
        elif not line and data:
            yield name, "\n".join(data)
            name, data = "", []


def _value(text: str) -> Any:
    """Returns what a text of JSON says; the text itself, if it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _add(choice: dict[str, Any], part: Mapping[str, Any]) -> None:
    for name, value in part.items():
        if name in _ADDED:
            name = _ADDED[name]
            choice[name] = _sum(choice.get(name), value)
        elif value is not None:
            choice[name] = value


def _sum(old: Any, new: Any) -> Any:
    """Joins two parts: texts and lists one after the other, objects by their fields."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **{name: _sum(old.get(name), value) for name, value in new.items()}}
    if type(old) is type(new) and isinstance(new, str | list):
        return old + new
    return old if new is None else new
