"""Goals that one could sensibly pursue in a state: an LLM suggests them, as a list (ELLM, arXiv 2302.06692)."""

import json
import re
from collections.abc import Sequence
from typing import Any

from oni_jax.annotation.queries.base import Judgement, QueryKind, Rules, check_goals
from oni_jax.types import Item

BULLET = "- "
MAX_GOALS, MAX_WORDS = 40, 12  # a longer line is no goal

_SENTENCE = re.compile(r"(^|\. )([a-z])")
_MARKER = re.compile(r"\s*(?:[-*+•–—]+|\(?\d{1,3}[.):]|\(?[a-z][.)])\s*", re.IGNORECASE)
_ENDS = " \t\r\"'`*_.,;!"
_FENCE = re.compile(r'\n(?:"""|```)\Z')


class Suggestions(QueryKind):
    """Answers are kept as they are: they are parsed when they are used, see `parsed`. See `QueryKind`."""

    name = "suggestions"
    placeholders = ("{caption}",)
    openings = ("<state>\n",)
    rewrites = True

    def render(self, escaped: str) -> str:
        return _SENTENCE.sub(lambda found: found[1] + found[2].upper(), escaped)

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        return text.encode() if listed(text) else None

    def is_answer(self, kept: bytes) -> bool:
        return bool(parsed(kept, strict=False))

    def describe(self, kept: bytes) -> str:
        return f"{len(parsed(kept, strict=False))} goals"

    def read_as(self, kept: bytes) -> Sequence[str]:
        return parsed(kept, strict=False)

    def to_record(self, kept: bytes) -> object:
        return parsed(kept, strict=False)

    def from_record(self, record: Any) -> bytes:
        return "\n".join(BULLET + goal for goal in check_goals(record)).encode()

    def judge(self, rules: Rules, goal: str, item: Item, answer_key: str) -> Judgement:
        word = "\n".join(BULLET + suggestion for suggestion in rules.suggest_goals(*item))
        return Judgement("Rules that were written beforehand, not an LLM.", word, word)


class StrictSuggestions(Suggestions):
    """The same queries, but an answer that does not read as published is unreadable. See `dashed`."""

    name = "suggestions_strict"
    asks_as = Suggestions.name

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        kept = text.encode()
        return kept if parsed(kept, strict=True) else None


def parsed(kept: bytes, strict: bool) -> list[str]:
    """Returns the goals of an answer, in lower case, each once, in its order; none: unreadable.

    strict: read as published, see `dashed`.
    """
    text = kept.decode("utf-8", "replace")
    try:
        found = dashed(text) if strict else listed(text)
    except ValueError:
        return []
    return list(dict.fromkeys(found))[:MAX_GOALS]


def listed(text: str) -> list[str]:
    """Returns the goals of a list with dashes, stars or numbers, of a JSON list, or else of short lines; see `parsed`.

    What surrounds the list is left out. Hyphens and underscores inside a goal are spaces.
    """
    lines = _json_lines(text) or text.splitlines()
    marked = [line[found.end() :] for line in lines if (found := _MARKER.match(line))]
    goals = [_goal(line) for line in marked or lines]
    return [goal for goal in goals if goal and len(goal.split()) <= MAX_WORDS][:MAX_GOALS]


def dashed(text: str) -> list[str]:
    """Returns the goals of an answer each line of which begins with a dash. Raises ValueError: another does.

    ELLM: every dash separates goals, inside words too.
    """
    text = _FENCE.sub("", text)
    if not all(line.startswith("-") for line in text.split("\n")):
        raise ValueError("a line does not begin with a dash")
    parts = (part.strip(" .\n") for part in text.lower().split("-"))
    return [part for part in parts if part]


def _goal(line: str) -> str:
    """Returns a line's goal; none of a heading, or of a line without letters."""
    line = line.strip(_ENDS)
    if line.endswith(":") or not any(map(str.isalpha, line)):
        return ""
    return " ".join(re.sub("[-_]", " ", line).lower().split())


def _json_lines(text: str) -> list[str]:
    """Returns the texts of a JSON list; nothing where there is none."""
    first, last = text.find("["), text.rfind("]")
    try:
        found = json.loads(text[first : last + 1]) if 0 <= first < last else []
    except (ValueError, RecursionError):
        return []
    return [x for x in found if isinstance(x, str)] if isinstance(found, list) else []
