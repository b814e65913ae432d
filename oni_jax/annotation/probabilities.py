"""Reading the labels' probabilities, in the four formats that servers send. No function raises."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any


def read_probabilities(logprobs: object, words: Sequence[str]) -> list[float] | None:
    """Returns the labels' probabilities, normalised, at the token where the answer's label begins, or None.

    Reads `content` with log-probabilities (chat; llama.cpp's completions too) or with linear `prob`s (llama.cpp's
    post_sampling_probs), and the older parallel lists, with their lists of alternatives or without.
    """
    positions = _positions(logprobs)
    # A constrained label may be several tokens ("F", "OO") after a quote: take the one where it begins.
    starts = [alternatives for token, alternatives in positions if _begins(token, words)]
    for alternatives in starts or [alternatives for _, alternatives in positions]:
        found = [sum(p for token, p in alternatives.items() if _begins(token, [word])) for word in words]
        if sum(found) <= 0:
            continue
        # A label missing from the list is at most as likely as the list's least, and as all that are missing together.
        unseen = min(min(alternatives.values()), max(0.0, 1.0 - sum(alternatives.values())))
        found = [probability or unseen for probability in found]
        return [min(1.0, probability / sum(found)) for probability in found]
    return None


def has_probabilities(logprobs: object) -> bool:
    """Returns whether any token has a probability that is not 0, as -9999 says of all where a server knows none."""
    return any(p > 0 for _, alternatives in _positions(logprobs) for p in alternatives.values())


def first_token(logprobs: object) -> dict[str, float]:
    """Returns the probabilities of an answer's first token and its alternatives; none where there are no numbers."""
    positions = _positions(logprobs)
    return positions[0][1] if positions else {}


def _begins(token: str, words: Sequence[str]) -> bool:
    """Returns whether a token begins one of these labels: "F", " FO", '"FOO' begin FOO."""
    letters = re.sub(r"[\W_]", "", token[:16]).lstrip("Ġ").upper()
    return bool(letters) and any(word.upper().startswith(letters) for word in words)


def _positions(logprobs: object) -> list[tuple[str, dict[str, float]]]:
    """Each token of the answer, with the probabilities of its alternatives, itself among them."""
    if isinstance(logprobs, list):
        logprobs = {"content": logprobs}
    if not isinstance(logprobs, Mapping):
        return []
    if isinstance(content := logprobs.get("content"), list):
        return [_chat_position(entry) for entry in content[:32] if isinstance(entry, Mapping)]
    tokens, token_logprobs, tops = (_list(logprobs.get(key)) for key in ("tokens", "token_logprobs", "top_logprobs"))
    positions = []
    for i in range(min(32, max(len(tokens), len(tops)))):
        token = tokens[i] if i < len(tokens) else None
        alternatives = tops[i] if i < len(tops) and isinstance(tops[i], Mapping) else {}
        pairs = [*alternatives.items(), (token, token_logprobs[i] if i < len(token_logprobs) else None)]
        positions.append((_word(token), _probabilities(pairs, linear=False)))
    return positions


def _chat_position(entry: Mapping[str, Any]) -> tuple[str, dict[str, float]]:
    linear = "prob" in entry or "top_probs" in entry
    value, alternatives = ("prob", "top_probs") if linear else ("logprob", "top_logprobs")
    entries = [e for e in (*_list(entry.get(alternatives)), entry) if isinstance(e, Mapping)]
    return _token(entry), _probabilities([(_token(e), e.get(value)) for e in entries], linear=linear)


def _token(entry: Mapping[str, Any]) -> str:
    """Returns a token's text; by its bytes where a server sends its number or nothing instead."""
    token, raw = _word(entry.get("token")), _list(entry.get("bytes"))
    if re.fullmatch(r"(token_id:\d+)?", token) and all(type(byte) is int and 0 <= byte < 256 for byte in raw):
        return bytes(raw[:64]).decode("utf-8", "replace")
    return token


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _probabilities(pairs: list[tuple[Any, Any]], *, linear: bool) -> dict[str, float]:
    """Converts values to probabilities by token; skips values that are not numbers, and NaN."""
    probabilities = {}
    for token, value in pairs[:64]:
        if isinstance(token, str) and type(value) in (int, float) and value == value:
            bounded = float(max(-1e4, min(1.0, value)))
            probabilities[token] = max(0.0, bounded) if linear else math.exp(min(0.0, bounded))
    return probabilities
