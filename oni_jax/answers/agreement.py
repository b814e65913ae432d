"""Agreement of independent readers of one question, of whom each answered by itself, perhaps under some goals alone.

A file of readings has the form of recorded answers, but for its format and its rows: `[[texts], [[answers], ...]]`,
answers by goal of each reader.
"""

import gzip
import itertools
import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.answers.form import encoded
from oni_jax.settings.fields import caption_bytes
from oni_jax.types import Item

FORMAT = "oni_jax readings 1"


class Readings(NamedTuple):
    """Items that several readers answered."""

    kind: str
    goals: tuple[str, ...]
    rows: Mapping[Item, Sequence[Sequence[bytes | None]]]  # answers by reader, each by goal; None: not read


class Agreement(NamedTuple):
    """The agreement of readers, and of how many on how much."""

    value: float | None  # Cohen's kappa, of lists Jaccard index, mean over pairs; None: not defined
    num_items: int
    num_readers: int


def read_readings(path: str) -> Readings:
    """Reads a file of the package. Raises ValueError, KeyError, OSError: it is damaged."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        header, *lines = map(json.loads, file)
    if header["format"] != FORMAT:
        raise ValueError(f"{path}: has another format")
    kind, rows = QUERIES[header["kind"]], {}
    for texts, readers in lines:
        item = tuple(caption_bytes(text) for text in texts)
        rows[item] = [[x if x is None else encoded(kind, x) for x in answers] for answers in readers]
    return Readings(header["kind"], tuple(header["goals"]), rows)


def agreement(readings: Readings, goal: str) -> Agreement:
    """Returns the agreement of the readers under a goal, on the items that all of them read."""
    kind, column = QUERIES[readings.kind], readings.goals.index(goal)
    rows = [[reading[column] for reading in row] for row in readings.rows.values()]
    answers = [[tuple(kind.read_as(x)) for x in row if x is not None] for row in rows if None not in row]
    num_readers = len(answers[0])
    values = [_alike(kind.choices, pairs) for pairs in _pairs(answers, num_readers)]
    known = [value for value in values if value is not None]
    return Agreement(sum(known) / len(known) if known else None, len(answers), num_readers)


def _pairs(answers: Sequence[Sequence[tuple[str, ...]]], num_readers: int) -> Iterator[list[tuple]]:
    for one, other in itertools.combinations(range(num_readers), 2):
        yield [(row[one], row[other]) for row in answers]


def _alike(choices: Sequence[str], pairs: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]) -> float | None:
    if choices:
        return cohens_kappa(pairs)
    return sum(len({*a} & {*b}) / max(1, len({*a} | {*b})) for a, b in pairs) / len(pairs)


def cohens_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Returns Cohen's kappa of two raters' labels (Cohen 1960). None: chance alone would make them agree always."""
    num = len(pairs)
    observed = sum(a == b for a, b in pairs)
    of_first, of_second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    expected = sum(count * of_second[label] for label, count in of_first.items())  # times num
    return (observed * num - expected) / (num * num - expected) if expected < num * num else None
