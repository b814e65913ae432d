"""Reading answers: the label in an answer's text.

Nothing here raises, whatever a server sends. What can't be read is None, never a label.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from oni_jax.annotation.probabilities import read_probabilities
from oni_jax.annotation.prompt_files import DEFAULT_ANSWER_KEY
from oni_jax.types import FIRST, SECOND, TIE

HELPFUL, UNHELPFUL = "FOO", "BAR"
LABEL_WORDS: Mapping[str, tuple[str, ...]] = {  # by kind of prompt; a word's place is its label
    "classification": (UNHELPFUL, HELPFUL),
    "ranking": ("1", "2", "None"),
}
MAX_TEXT_CHARS = 100_000
TOKEN_COUNTS = ("prompt_tokens", "completion_tokens")  # of `usage`, which not every server sends
MAX_TOKENS = 1 << 32  # of one request

_TAGGED = re.compile(r"<label>(.*?)(?:</label>|$)", re.IGNORECASE | re.DOTALL)
# Stand-alone: no letter or digit beside it.
_STANDING_ALONE = re.compile(rf"(?<![^\W_])({HELPFUL}|{UNHELPFUL})(?![^\W_])")
# "FOO or BAR", "FOO/BAR": the choices named over again.
_BOTH = re.compile(
    rf"(?<![^\W_])(?:{HELPFUL}|{UNHELPFUL})(?:\W{{0,8}}(?:or|and)\W{{0,8}}|\s{{0,3}}[/|]\s{{0,3}})"
    rf"(?:{HELPFUL}|{UNHELPFUL})(?![^\W_])"
)
# "not FOO", "isn't a FOO", "neither FOO nor BAR", "rather than FOO"
_DENIED = re.compile(
    r"(?:\bnot|\bnever|\bn?either|\bnor|n['’]t|\brather than|\binstead of)(?:\W+(?:an?|be))?\W*$", re.I
)
_DENIAL_CHARS = 24
_PREFERENCES = {"1": FIRST, "2": SECOND, "NONE": TIE, "NULL": TIE}
# "1 or 2", "1/2": a list of what might be said. Bounded, as all that is searched for in a server's text.
_OR_BEFORE = re.compile(r"\bor[\W_]{0,8}$", re.I)
_OR_AFTER = re.compile(r"[\W_]{0,8}or\b|\s{0,3}[/|]\s{0,3}(?:[12]|none|null)\b", re.I)


class Reply(NamedTuple):
    """One choice of a server's answer."""

    text: str
    label: int | None  # as in Annotation; None: unreadable
    probability: float  # as in Annotation


def read_choice(choice: object, kind: str = "classification", answer_key: str = DEFAULT_ANSWER_KEY) -> Reply:
    """One element of `choices`, of either endpoint, in answer to a prompt of this kind and answer key."""
    fields = choice if isinstance(choice, Mapping) else {}
    text = _text(fields)
    ranking = kind == "ranking"
    label = read_preference(text, answer_key) if ranking else read_label(text)
    if label is None:
        return Reply(text, None, 0.0)
    # In a comparison's reasons, 1 and 2 are no labels: probabilities are read where the answer is the label alone.
    readable = not ranking or _bare(text) in _PREFERENCES
    probabilities = read_probabilities(fields.get("logprobs"), LABEL_WORDS[kind]) if readable else None
    if ranking:
        return Reply(text, label, probabilities[label] if probabilities else 1.0)
    return Reply(text, label, probabilities[1] if probabilities else float(label))


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


def read_label(text: str) -> int | None:
    """1 for FOO, 0 for BAR, None if unreadable.

    The last tagged label decides. Without a tag, it is the whole text if that is a label, else the last stand-alone
    FOO or BAR that is not denied ("not FOO") or one of both named together ("FOO or BAR").
    """
    # ONI: as published, the first "FOO" anywhere wins, also in "this is not FOO ... <label>BAR</label>".
    text = text.replace("\ufffd", "")
    tagged = _TAGGED.findall(text)
    whole = _bare(tagged[-1] if tagged else text)
    if whole in (HELPFUL, UNHELPFUL):
        return int(whole == HELPFUL)
    if tagged:
        return None
    text = _BOTH.sub("", text)
    for match in reversed(list(_STANDING_ALONE.finditer(text))):
        if not _DENIED.search(text[max(0, match.start() - _DENIAL_CHARS) : match.start()]):
            return int(match[1] == HELPFUL)
    return None


def read_preference(text: str, answer_key: str = DEFAULT_ANSWER_KEY) -> int | None:
    """0 if the first is preferred, 1 for the second, 2 for a declared tie, None if unreadable.

    The last declaration that is not denied decides: ("best_description": 1), in any quotes and brackets, with : or =.
    A tie is declared as None or null. A choice of several ("1 or 2") is unreadable, and 0 is. Without a declaration
    the whole text may be the choice.
    """
    # ONI: as published one key is searched for whatever the prompt asks for, and what can't be read is a tie.
    text = text.replace("\ufffd", "")
    if (whole := _bare(text)) in _PREFERENCES:
        return _PREFERENCES[whole]
    key = r"[\s\\_-]{0,3}".join(map(re.escape, answer_key.split("_")))
    declaration = (
        rf"(?<![^\W_])(?<![^\W_]_){key}[\W_]{{0,8}}[:=][\W_]{{0,8}}(?:(?:description|message|text)[\W_]{{0,3}})?"
    )
    for match in reversed(list(re.finditer(rf"{declaration}(\w+(?:\.\w+)*)", text, re.IGNORECASE))):
        before = text[max(0, match.start() - _DENIAL_CHARS) : match.start()]
        if not _DENIED.search(before):
            several = _OR_BEFORE.search(before) or _OR_AFTER.match(text, match.end())
            return None if several else _PREFERENCES.get(match[1].upper())
    return None


def _bare(text: str) -> str:
    """Upper case, without the spaces, quotes, stars and stops around it."""
    return re.sub(r"^[\W_]+|[\W_]+$", "", text[:64]).upper() if len(text.strip()) <= 64 else ""
