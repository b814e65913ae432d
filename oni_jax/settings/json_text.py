"""JSON that a bad disk, or somebody else, may have changed: plain, finite, and with a checksum."""

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

SUM = "checksum"  # name in an object, of the sum of all else in it
RUN_ID = "run_id"  # name in an object, of the run that it is of; earlier versions' objects lack it


def parsed(text: str | bytes) -> Any:
    """Parses JSON.

    Raises:
        ValueError: it is none, nested too deeply, an object has a name twice, or no float can hold a number.
    """
    try:
        return json.loads(
            text, parse_constant=_finite, parse_float=_finite, parse_int=_whole, object_pairs_hook=_object
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"it holds the number {text:.20}")
    return number


def _whole(text: str) -> int:
    _finite(text)  # a larger number would end what computes with it
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it holds {next(name for name in names if names.count(name) > 1)!a:.80} twice")
    return found


def sealed(about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a JSON object with its checksum, in the form in which it will be read."""
    text = json.loads(json.dumps(about))
    return {**text, SUM: sum_of(text)}


def is_sealed(about: Mapping[str, Any], is_due: bool = False) -> bool:
    """Returns whether an object is what was sealed; one without a checksum is, unless it is due: earlier versions'."""
    return about[SUM] == sum_of(unsealed(about)) if SUM in about else not is_due


def unsealed(about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an object without its checksum."""
    return {name: value for name, value in about.items() if name != SUM}


def sum_of(about: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(about, sort_keys=True).encode())


def parsed_object(text: str | bytes) -> dict[str, Any]:
    """Parses a JSON object. Raises ValueError: see `parsed`; also for other JSON, and one of another checksum."""
    found = parsed(text)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    if not is_sealed(found):
        raise ValueError("it is damaged: its checksum is another")
    return unsealed(found)
