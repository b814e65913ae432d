"""Comparison of two captions, or descriptions: which is better."""

import re
from collections.abc import Iterable, Mapping

from oni_jax.annotation.probabilities import read_probabilities
from oni_jax.annotation.queries.base import Judgement, Rules
from oni_jax.annotation.queries.choices import (
    DENIAL_CHARS,
    ChoiceAnswers,
    bare,
    decode_label,
    encode_label,
    is_denied,
    without_parts,
)
from oni_jax.types import FIRST, SECOND, TIE, Annotation, Item

_PREFERENCES = {"1": FIRST, "2": SECOND, "NONE": TIE, "NULL": TIE}
# "1 or 2", "1/2": the choices repeated. Bounded, as every search in a server's text.
_OR_BEFORE = re.compile(r"\bor[\W_]{0,8}$", re.I)
_NEXT = re.compile(r"[\W_]{0,8}$")  # text between declarations that are a list of choices
_OR_AFTER = re.compile(r"[\W_]{0,8}or\b|\s{0,3}[/|]\s{0,3}(?:[12]|none|null)\b", re.I)


class Ranking(ChoiceAnswers):
    """Labels FIRST, SECOND and TIE. See `QueryKind`."""

    name = "ranking"
    placeholders = ("{first}", "{second}")
    choices = ("1", "2", "None")
    names = ("first", "second", "tie")
    openings = ("<first>\n", "<second>\n")
    columns = ("better", "worse", "tie")

    def render(self, escaped: str) -> str:
        return escaped.replace("\\x0a", "\n")  # a description has lines

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        label = read_preference(text, answer_key)
        if label is None:
            return None
        # Reasoning has 1s and 2s that are no labels: probabilities are read only where the answer is the label alone.
        probabilities = read_probabilities(logprobs, self.choices) if bare(text) in _PREFERENCES else None
        return encode_label(label, probabilities[label] if probabilities else 1.0)

    def tally(self, annotations: Iterable[Annotation]) -> Mapping[bytes, tuple[int, ...]]:
        counts: dict[bytes, tuple[int, ...]] = {}
        for item, answer, _ in annotations:
            if answer is None:
                continue
            label = decode_label(answer).label
            for index, caption in enumerate(item, FIRST):
                better, worse, tie = counts.get(caption, (0, 0, 0))
                counts[caption] = (better + (label == index), worse + (label not in (index, TIE)), tie + (label == TIE))
        return counts

    def judge(self, rules: Rules, goal: str, item: Item, answer_key: str) -> Judgement:
        label = rules.judge_pair(goal, *item)
        better = ("The first is better", "The second is better", "Neither is better")[label]
        word = self.choices[label]
        return Judgement(f"{better} for this player.", word, f'("{answer_key}": {word})')


def read_preference(text: str, answer_key: str) -> int | None:
    """Returns 0 if the first is preferred, 1 for the second, 2 for a declared tie, None if unreadable.

    The first declaration that is not denied decides: ("best_description": 1), in any quotes and brackets, with : or =.
    A tie is declared as None or null. A choice of several ("1 or 2") is unreadable, and 0 is. Without a declaration
    the whole text may be the choice.
    """
    # ONI: as published one key is searched for whatever the prompt asks for, and an unreadable answer is a tie.
    text = without_parts(text.replace("\ufffd", ""))
    if (whole := bare(text)) in _PREFERENCES:
        return _PREFERENCES[whole]
    key = r"[\s\\_-]{0,3}".join(map(re.escape, answer_key.split("_")))
    declaration = (
        rf"(?<![^\W_])(?<![^\W_]_){key}[\W_]{{0,8}}[:=][\W_]{{0,8}}(?:(?:description|message|text)[\W_]{{0,3}})?"
    )
    found = re.finditer(rf"{declaration}(\w+(?:\.\w+)*)", text, re.IGNORECASE)
    for match in found:
        before = text[max(0, match.start() - DENIAL_CHARS) : match.start()]
        if not is_denied(before):
            after = next(found, None)
            listed = after and _NEXT.match(text[match.end() : after.start()])
            several = _OR_BEFORE.search(before) or _OR_AFTER.match(text, match.end())
            return None if several or listed else _PREFERENCES.get(match[1].upper())
    return None
