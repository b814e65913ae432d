"""Reading answers: the label in an answer's text, and its probability in the four shapes that servers send.

Nothing here raises, whatever a server sends. What can't be read is None, never a label.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

HELPFUL, UNHELPFUL = "FOO", "BAR"
MAX_TEXT_CHARS = 100_000

_TAGGED = re.compile(r"<label>(.*?)(?:</label>|$)", re.IGNORECASE | re.DOTALL)
# Stand-alone: no letter or digit beside it.
_STANDING_ALONE = re.compile(rf"(?<![^\W_])({HELPFUL}|{UNHELPFUL})(?![^\W_])")
# "not FOO", "isn't a FOO", "neither FOO nor BAR", "rather than FOO"
_DENIED = re.compile(
    r"(?:\bnot|\bnever|\bn?either|\bnor|n['’]t|\brather than|\binstead of)(?:\W+(?:an?|be))?\W*$", re.I
)
_DENIAL_CHARS = 24


class Reply(NamedTuple):
    """One choice of a server's answer."""

    text: str
    label: int | None  # 1 helpful, 0 not, None unreadable
    probability: float  # of label 1


def read_choice(choice: object) -> Reply:
    """One element of `choices`, of either endpoint."""
    fields = choice if isinstance(choice, Mapping) else {}
    text = _text(fields)
    label = read_label(text)
    if label is None:
        return Reply(text, None, 0.0)
    probability = read_probability(fields.get("logprobs"))
    return Reply(text, label, float(label) if probability is None else probability)


def _text(fields: Mapping[str, Any]) -> str:
    """The text of a completion, or of a chat message (a string, or a list of parts)."""
    message = fields.get("message")
    content = message.get("content") if isinstance(message, Mapping) else fields.get("text")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content[:MAX_TEXT_CHARS] if isinstance(content, str) else ""


def read_label(text: str) -> int | None:
    """1 for FOO, 0 for BAR, None if unreadable.

    The last tagged label decides. Without a tag, it is the whole text if that is a label, else the last stand-alone
    FOO or BAR that is not denied ("not FOO").
    """
    # ONI: as published, the first "FOO" anywhere wins, also in "this is not FOO ... <label>BAR</label>".
    text = text.replace("\ufffd", "")
    tagged = _TAGGED.findall(text)
    whole = _bare(tagged[-1] if tagged else text)
    if whole in (HELPFUL, UNHELPFUL):
        return int(whole == HELPFUL)
    if tagged:
        return None
    for match in reversed(list(_STANDING_ALONE.finditer(text))):
        if not _DENIED.search(text[max(0, match.start() - _DENIAL_CHARS) : match.start()]):
            return int(match[1] == HELPFUL)
    return None


def _bare(text: str) -> str:
    """Upper case, without the spaces, quotes, stars and stops around it."""
    return re.sub(r"^[\W_]+|[\W_]+$", "", text[:64]).upper() if len(text.strip()) <= 64 else ""


def read_probability(logprobs: object) -> float | None:
    """P(FOO) / (P(FOO) + P(BAR)) where the answer's label begins, or None.

    Reads `content` with log-probabilities (chat; llama.cpp's completions too) or with linear `prob`s (llama.cpp's
    post_sampling_probs), and the older parallel lists, with their lists of alternatives or without.
    """
    places = _places(logprobs)
    # A constrained label may be several tokens ("F", "OO") after a quote: take the place where it begins.
    starts = [alternatives for token, alternatives in places if _begins(token)]
    for alternatives in starts or [alternatives for _, alternatives in places]:
        helpful, unhelpful = (
            sum(p for token, p in alternatives.items() if _begins(token) == label) for label in (HELPFUL, UNHELPFUL)
        )
        if helpful + unhelpful <= 0:
            continue
        # A label missing from the list is no likelier than the least of the list, nor than what the list leaves.
        unseen = min(min(alternatives.values()), max(0.0, 1.0 - sum(alternatives.values())))
        helpful, unhelpful = helpful or unseen, unhelpful or unseen
        return min(1.0, helpful / (helpful + unhelpful))
    return None


def _begins(token: str) -> str | None:
    """The label that a token begins: "F", " FO", '"FOO' begin FOO."""
    letters = re.sub(r"[\W_]", "", token[:16]).lstrip("Ġ").upper()
    return next((label for label in (HELPFUL, UNHELPFUL) if letters and label.startswith(letters)), None)


def _places(logprobs: object) -> list[tuple[str, dict[str, float]]]:
    """For each token of the answer: the token, and its alternatives' probabilities, its own among them."""
    if not isinstance(logprobs, Mapping):
        return []
    if isinstance(content := logprobs.get("content"), list):
        return [_chat_place(entry) for entry in content[:32] if isinstance(entry, Mapping)]
    tokens, own, tops = (_list(logprobs.get(key)) for key in ("tokens", "token_logprobs", "top_logprobs"))
    places = []
    for i, token in enumerate(tokens[:32]):
        alternatives = tops[i] if i < len(tops) and isinstance(tops[i], Mapping) else {}
        pairs = [*alternatives.items(), (token, own[i] if i < len(own) else None)]
        places.append((str(token), _probabilities(pairs, linear=False)))
    return places


def _chat_place(entry: Mapping[str, Any]) -> tuple[str, dict[str, float]]:
    linear = "prob" in entry or "top_probs" in entry
    value, alternatives = ("prob", "top_probs") if linear else ("logprob", "top_logprobs")
    entries = [e for e in (*_list(entry.get(alternatives)), entry) if isinstance(e, Mapping)]
    return str(entry.get("token")), _probabilities([(e.get("token"), e.get(value)) for e in entries], linear=linear)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _probabilities(pairs: list[tuple[Any, Any]], *, linear: bool) -> dict[str, float]:
    """Tokens and numbers as probabilities; what is no number is left out."""
    probabilities = {}
    for token, value in pairs[:64]:
        if (
            not isinstance(token, str)
            or isinstance(value, bool)
            or not isinstance(value, int | float)
            or value != value
        ):
            continue
        bounded = float(max(-1e4, min(1.0, value)))
        probabilities[token] = max(0.0, bounded) if linear else math.exp(min(0.0, bounded))
    return probabilities
