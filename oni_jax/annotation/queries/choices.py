"""Answers that are one of a few choices: a label and its probability, encoded as text such as `1 0.97`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from oni_jax.annotation.first_turn import first_line
from oni_jax.annotation.queries.base import QueryKind
from oni_jax.settings.fields import is_within
from oni_jax.types import Annotation

# "not FOO", "isn't a FOO", "neither FOO nor BAR", "rather than FOO"
_DENIED = re.compile(
    r"(?:\bnot|\bnever|\bn?either|\bnor|n['’]t|\brather than|\binstead of)(?:\W+(?:an?|be))?\W*$", re.I
)
DENIAL_CHARS = 24
_PART = re.compile(r"<(/?)(knowledge|analysis)>", re.I)  # tags of a reasoned answer, around the text before the choice


class Label(NamedTuple):
    """A choice of the LLM, and its probability."""

    label: int  # the choice's index
    probability: float  # classification: of helpful, else the label; ranking: of the label, else 1


def encode_label(label: int, probability: float) -> bytes:
    """Encodes a label for the store."""
    return f"{label} {float(probability)!r}".encode()


def decode_label(kept: bytes) -> Label:
    """Inverts `encode_label`. Raises ValueError."""
    label, probability = kept.split(b" ")
    return Label(int(label), float(probability))


class ChoiceAnswers(QueryKind):
    """Base of the kinds of query with choices."""

    names: Sequence[str]  # names of the choices, for display

    def read_word(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        return self.read(first_line(text), logprobs, answer_key) or self.read(text, logprobs, answer_key)

    def is_answer(self, kept: bytes) -> bool:
        try:
            label, probability = decode_label(kept)
        except ValueError:
            return False
        return 0 <= label < len(self.names) and is_within(probability, "[0, 1]")

    def describe(self, kept: bytes) -> str:
        return self.names[decode_label(kept).label]

    def certain(self, label: int) -> float:
        """Returns the probability that goes with a label alone."""
        return 1.0

    def to_record(self, kept: bytes) -> object:
        label, probability = decode_label(kept)
        return label if probability == self.certain(label) else [label, probability]

    def from_record(self, record: Any) -> bytes:
        label, probability = record if isinstance(record, list) else (record, None)
        if type(label) is not int:
            raise ValueError(f"{label!r:.60} is no label")
        if isinstance(record, list) and type(probability) not in (int, float):
            raise ValueError(f"{probability!r:.60} is no probability")
        return encode_label(label, self.certain(label) if probability is None else float(probability))

    def probability(self, kept: bytes) -> float | None:
        probability = decode_label(kept).probability
        return probability if 0 < probability < 1 else None  # an answer without log-probabilities has 0 or 1


class TwoChoices(ChoiceAnswers):
    """Base of the kinds about one caption whose probability is that of the second of two choices."""

    columns = ("label",)

    def certain(self, label: int) -> float:
        return float(label)

    def probability(self, kept: bytes) -> float | None:
        of_second = super().probability(kept)
        return of_second if of_second is None or decode_label(kept).label else 1 - of_second

    def tally(self, annotations: Iterable[Annotation]) -> Mapping[bytes, tuple[int, ...]]:
        return {a.item[0]: (decode_label(a.answer).label,) for a in annotations if a.answer is not None}


def bare(text: str) -> str:
    """Upper-cases a text, without spaces and punctuation around it; empty if it is long."""
    return re.sub(r"^[\W_]+|[\W_]+$", "", text[:64]).upper() if len(text.strip()) <= 64 else ""


def without_parts(text: str, next_tag: str = "") -> str:
    """Returns a reasoned answer without its knowledge and analysis.

    next_tag: ends a part that was not closed; empty: such a part is kept.
    """
    kept, start, name, opened = "", 0, "", 0
    for tag in _PART.finditer(text):
        if not tag[1]:
            kept, opened = (kept, opened) if name else (kept + text[start : tag.start()], tag.start())
            name = tag[2].lower()
        elif tag[2].lower() == name:
            start, name = tag.end(), ""
    if name:
        end = text.lower().find(next_tag, opened) if next_tag else opened
        start = end if end >= 0 else len(text)
    return kept + text[start:]


def is_denied(before: str) -> bool:
    """Returns whether the text before a choice ends in a denial, such as "not"."""
    return bool(_DENIED.search(before[-DENIAL_CHARS:]))
