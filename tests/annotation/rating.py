"""A kind of query as a plugin brings it: how good is a message, from 0 to 10? The answer is free text."""

import re
from collections.abc import Iterable, Mapping

from oni_jax.annotation.queries.base import Judgement, QueryKind, Rules
from oni_jax.types import Annotation, Item

PROMPT = {
    "kind": "rating",
    "system": "You rate messages.",
    "user": ["{goal}", "{answer}", "<rated>", "{message}", "</rated>"],
    "goals": {"defaultgoal": "Win.", "gold": "Get rich."},
    "answers": {"reasoned": "Reason, then say Rating: N", "label": "Say a number."},
}


class Rating(QueryKind):
    """Kept as one byte."""

    name = "rating"
    placeholders = ("{message}",)
    choices = ()
    openings = ("<rated>\n",)
    columns = ("rating",)

    def render(self, escaped: str) -> str:
        return f"> {escaped}"

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        found = re.findall(r"(?i)rating: (\d{1,2})\b", text[-1000:])
        return bytes([int(found[-1])]) if found and int(found[-1]) <= 10 else None

    def is_answer(self, kept: bytes) -> bool:
        return len(kept) == 1 and kept[0] <= 10

    def describe(self, kept: bytes) -> str:
        return f"{kept[0]} of 10"

    def tally(self, annotations: Iterable[Annotation]) -> Mapping[bytes, tuple[int, ...]]:
        return {item[0]: (answer[0],) for item, answer, _ in annotations if answer is not None}

    def judge(self, rules: Rules, goal: str, item: Item, answer_key: str) -> Judgement:
        helpful, words = rules.judge_caption(goal, item[0].removeprefix(b"> "))
        word = "9" if helpful else "2"
        return Judgement(f"It tells of {words}.", word, f"Rating: {word}")
