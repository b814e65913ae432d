"""Comparison of two segments, A and B, of recorded episodes: which is better (BK-Pref, arXiv 2407.03964)."""

import re

from oni_jax.annotation.queries.base import Judgement, Rules
from oni_jax.annotation.queries.choices import ChoiceAnswers, encode_label
from oni_jax.types import FIRST, SECOND, TIE, Item

_MARK = "[Rank]"
_MARKED = re.compile(r"^[ \t#*_>]{0,6}\[Rank\]", re.I | re.M)
_MENTIONED = re.compile(re.escape(_MARK), re.I)
_LABELS = {("A", ">"): FIRST, ("B", "<"): FIRST, ("A", "<"): SECOND, ("B", ">"): SECOND}
# Bounded, as every search in a server's text.
_RELATION = re.compile(r"(?<![^\W_])([AB])[*_`\s]{0,3}([<>=])[*_`\s]{0,3}(?:Segment\s{1,3})?([AB])(?![^\W_])")


class Segments(ChoiceAnswers):
    """Labels FIRST, SECOND and TIE. See `QueryKind`."""

    name = "segments"
    placeholders = ("{first}", "{second}")
    choices = ("A > B", "B > A", "A = B")
    names = ("first", "second", "tie")
    openings = ("<segment_a>\n", "<segment_b>\n")

    def render(self, escaped: str) -> str:
        return escaped.replace("\\x0a", "\n")

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        label = read_rank(text)
        return None if label is None else encode_label(label, 1.0)

    def judge(self, rules: Rules, goal: str, item: Item, answer_key: str) -> Judgement:
        word = self.choices[rules.judge_segments(*item)]
        return Judgement("By rules that name no task.", word, f"{_MARK}\n{word}")


def read_rank(text: str) -> int | None:
    """Returns FIRST, SECOND or TIE, None if unreadable.

    The first line with a comparison after the first [Rank] that begins a line decides, if all its comparisons agree;
    where none begins a line, after the first one. An answer of one line may be the comparison alone.
    """
    # BK: of all after the first [Rank], "B > A" wins wherever it stands, also in "I think B > A is wrong; A > B".
    text = text.replace("\ufffd", "")
    mark = _MARKED.search(text) or _MENTIONED.search(text)
    if not mark and (len(text) > 64 or "\n" in text.strip()):
        return None
    for line in text[mark.end() if mark else 0 :].splitlines():
        found = [(one, sign) for one, sign, other in _RELATION.findall(line) if one != other]
        if labels := {TIE if sign == "=" else _LABELS[one, sign] for one, sign in found}:
            return labels.pop() if len(labels) == 1 else None
    return None
