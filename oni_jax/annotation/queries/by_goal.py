"""Labels of one caption under several goals, from one answer with a line for each (`--llm_answer goals`)."""

import re
from collections.abc import Sequence

from oni_jax.annotation.queries.base import QueryKind
from oni_jax.annotation.queries.choices import TwoChoices, is_denied, without_parts

SEPARATOR = b"\n"  # separator of labels; no label holds it
# Text that may stand before a goal's key: the beginning of a line, of an entry, of a tag; then markup, a number, a
# word.
_BEFORE = r"(?:^|[\n,;|{(\[>])[^\w\n]{0,12}(?:\d{1,3}[.):]\W{0,4})?(?:(?:for|under|the|goal|key|name)\W{1,6}){0,3}"
# And after it: a remark, markup around a colon or the like; or the label. In JSON the key may be a value.
_AFTER = (
    r"(?:\s?\([^()\n]{{0,60}}\))?(?:[\s\"'`*_)\]]{{0,8}}(?:[:=|>–—→-]|\bis\b)|[\"']\s{{0,4}},|[\W_]{{1,8}}(?={labels}))"
)
_SAID = re.compile(r"\W*[^\n]*")  # behind a key: the rest of the line, or the next one where that is empty


class ByGoal(QueryKind):
    """An answer is one line for each goal: its label as `kind` encodes it, empty where there is none. See `QueryKind`.

    Args:
        kind: of the labels.
        goals: their keys.
    """

    def __init__(self, kind: TwoChoices, goals: Sequence[str]):
        self._kind, self.goals = kind, tuple(goals)
        self.name, self.placeholders, self.openings = kind.name, kind.placeholders, kind.openings
        keys = "|".join(map(re.escape, sorted(goals, key=len, reverse=True)))
        labels = rf"(?<![^\W_])(?-i:{'|'.join(map(re.escape, kind.choices))})(?![^\W_])"
        self._label = re.compile(labels)
        self._declared = re.compile(rf"{_BEFORE}(?P<key>{keys})(?![^\W_]){_AFTER.format(labels=labels)}", re.IGNORECASE)

    @property
    def kept_as(self) -> QueryKind:
        return self._kind

    def render(self, escaped: str) -> str:
        return self._kind.render(escaped)

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        """Reads the labels that stand behind their goal's key. A goal with none, or with several, has no answer."""
        text = without_parts(text.replace("\ufffd", ""))
        declared = list(self._declared.finditer(text))
        found: dict[str, set[str]] = {goal: set() for goal in self.goals}
        for this, after in zip(declared, [*declared[1:], None]):
            said = _SAID.match(text[this.end() : after.start() if after else len(text)])[0]  # type: ignore
            labels = [x[0] * (not is_denied(said[: x.start()])) for x in self._label.finditer(said)]
            found[this["key"].lower()] |= {*filter(None, labels)} or {*labels}
        kept = [self._encoded(*labels) if len(labels) == 1 else b"" for labels in found.values()]
        return SEPARATOR.join(kept) if any(kept) else None

    def _encoded(self, label: str) -> bytes:
        return (label and self._kind.read_word(label, None, "")) or b""

    def read_cut_off(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        """The last line may not have been all: it counts if it ends in a label."""
        before, line_end, last = text.rpartition("\n")
        ends = [x.end() for x in self._label.finditer(last)]
        return self.read(text if ends and ends[-1] == len(last.rstrip()) else before + line_end, logprobs, answer_key)

    def split(self, kept: bytes) -> Sequence[bytes | None]:
        return [label or None for label in kept.split(SEPARATOR)]

    def is_answer(self, kept: bytes) -> bool:
        labels = self.split(kept)
        return len(labels) == len(self.goals) and all(x is None or self._kind.is_answer(x) for x in labels)

    def describe(self, kept: bytes) -> str:
        labels = zip(self.goals, self.split(kept))
        return ", ".join(f"{goal}: {self._kind.describe(x) if x else 'unreadable'}" for goal, x in labels)
