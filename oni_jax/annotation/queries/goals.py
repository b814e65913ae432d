"""Goals worth pursuing in a situation: an LLM that knows a world lists them, a line each."""

from collections.abc import Sequence
from typing import Any

from oni_jax.annotation.queries.base import Judgement, QueryKind, Rules, check_goals
from oni_jax.types import Item

BULLET = "- "


class Goals(QueryKind):
    """Answers are one goal or more, encoded as lines. See `QueryKind`."""

    name = "goals"
    placeholders = ("{segment}",)
    openings = ("<segment>\n",)

    def render(self, escaped: str) -> str:
        return escaped.replace("\\x0a", "\n")  # a segment has lines

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        return "\n".join(goals_in(text)).encode() or None

    def describe(self, kept: bytes) -> str:
        return f"{len(kept.splitlines())} goals"

    def read_as(self, kept: bytes) -> Sequence[str]:
        return kept.decode("utf-8", "replace").splitlines()

    def as_text(self, kept: bytes) -> str:
        return "\n".join(BULLET + goal for goal in self.read_as(kept))

    def to_record(self, kept: bytes) -> object:
        return kept.decode().splitlines()

    def from_record(self, record: Any) -> bytes:
        return "\n".join(check_goals(record)).encode()

    def judge(self, rules: Rules, goal: str, item: Item, answer_key: str) -> Judgement:
        word = "\n".join(BULLET + suggestion for suggestion in rules.write_goals(*item))
        return Judgement("Rules that were written beforehand, not an LLM.", word, word)


def goals_in(answer: str) -> list[str]:
    """Returns the goals of an LLM's answer: its lines that begin with "- ", without spaces around; none: unreadable."""
    # BK: spaces and carriage returns around a goal are part of it, and it may be empty.
    lines = (line.removeprefix(BULLET).strip() for line in answer.split("\n") if line.startswith(BULLET))
    return [line for line in lines if line]
