"""Classification of captions as helpful (FOO) or not (BAR)."""

import re

from oni_jax.annotation.first_turn import first_line
from oni_jax.annotation.probabilities import read_probabilities
from oni_jax.annotation.queries.base import Judgement, Rules
from oni_jax.annotation.queries.choices import TwoChoices, bare, encode_label, is_denied, without_parts
from oni_jax.types import Item

HELPFUL, UNHELPFUL = "FOO", "BAR"

_TAGGED = re.compile(r"<label>(.*?)(?:</label>|$)", re.IGNORECASE | re.DOTALL)
_PARAGRAPHS = re.compile(r"\n[ \t\r]*\n")
# Stand-alone: no adjacent letter or digit.
_STANDING_ALONE = re.compile(rf"(?<![^\W_])({HELPFUL}|{UNHELPFUL})(?![^\W_])")
_BEGINNING = re.compile(rf"[^\w<]*(?:<label>[^\w<]*)?(?:{HELPFUL}|{UNHELPFUL})(?![^\W_])")
# "FOO or BAR", "FOO/BAR": the choices repeated.
_BOTH = re.compile(
    rf"(?<![^\W_])(?:{HELPFUL}|{UNHELPFUL})(?:\W{{0,8}}(?:or|and)\W{{0,8}}|\s{{0,3}}[/|]\s{{0,3}})"
    rf"(?:{HELPFUL}|{UNHELPFUL})(?![^\W_])"
)


class Classification(TwoChoices):
    """Label 1 is helpful, 0 is not. See `QueryKind`."""

    name = "classification"
    placeholders = ("{message}",)
    choices = (UNHELPFUL, HELPFUL)
    names = ("not helpful", "helpful")
    openings = ("<message>\n",)

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        label = read_label(text)
        if label is None:
            return None
        probabilities = read_probabilities(logprobs, self.choices)
        return encode_label(label, probabilities[1] if probabilities else label)

    def read_word(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        line = first_line(text)
        said = line if _TAGGED.search(line) or _STANDING_ALONE.search(line) or bare(line) in self.choices else text
        names_both = len({*_STANDING_ALONE.findall(said)}) > 1
        return None if names_both else self.read(said, logprobs, answer_key)

    def read_cut_off(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        """Reasoning that names a label has not decided yet."""
        is_whole = _TAGGED.search(text) or bare(first_line(text)) in self.choices
        return self.read(text, logprobs, answer_key) if is_whole else None

    def read_word_cut_off(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        is_whole = _BEGINNING.match(text) or bare(first_line(text)) in self.choices
        return self.read_word(text, logprobs, answer_key) if is_whole else None

    def judge(self, rules: Rules, goal: str, item: Item, answer_key: str) -> Judgement:
        helpful, words = rules.judge_caption(goal, *item)
        analysis = f"The message is about {words}, which is {'' if helpful else 'not '}helpful for this player."
        word = self.choices[helpful]
        return Judgement(analysis, word, f"<label>{word}</label>")


def read_label(text: str) -> int | None:
    """Returns 1 for FOO, 0 for BAR, None if unreadable.

    The first tagged label decides. Without a tag, it is the whole text or its first line, if that is a label; else the
    last stand-alone FOO or BAR that is not denied ("not FOO") or one of both named together ("FOO or BAR"), unless
    paragraphs differ in it.
    """
    # ONI: as published, the first "FOO" anywhere wins, also in "this is not FOO ... <label>BAR</label>".
    text = without_parts(text.replace("\ufffd", ""), next_tag="<label>")
    tagged = _TAGGED.search(text)
    for whole in [tagged[1]] if tagged else (text, first_line(text)):
        if bare(whole) in (HELPFUL, UNHELPFUL):
            return int(bare(whole) == HELPFUL)
    if tagged:
        return None
    found = {_concluded(paragraph) for paragraph in _PARAGRAPHS.split(text)} - {None}
    return found.pop() if len(found) == 1 else None


def _concluded(text: str) -> int | None:
    """Returns the label that a text argues for, in its last words about labels."""
    text = _BOTH.sub("", text)
    for match in reversed(list(_STANDING_ALONE.finditer(text))):
        if not is_denied(text[: match.start()]):
            return int(match[1] == HELPFUL)
    return None
