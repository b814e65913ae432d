"""Classification of captions as helpful (FOO) or not (BAR)."""

import re

from oni_jax.annotation.probabilities import read_probabilities
from oni_jax.annotation.queries.base import Judgement, Rules
from oni_jax.annotation.queries.choices import TwoChoices, bare, encode_label, is_denied
from oni_jax.types import Item

HELPFUL, UNHELPFUL = "FOO", "BAR"

_TAGGED = re.compile(r"<label>(.*?)(?:</label>|$)", re.IGNORECASE | re.DOTALL)
# Stand-alone: no letter or digit beside it.
_STANDING_ALONE = re.compile(rf"(?<![^\W_])({HELPFUL}|{UNHELPFUL})(?![^\W_])")
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
        names_both = len({*_STANDING_ALONE.findall(text)}) > 1
        return None if names_both else self.read(text, logprobs, answer_key)

    def read_cut_off(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        """Reasoning that names a label has not decided yet."""
        is_whole = _TAGGED.search(text) or bare(text) in self.choices
        return self.read(text, logprobs, answer_key) if is_whole else None

    def judge(self, rules: Rules, goal: str, item: Item, answer_key: str) -> Judgement:
        helpful, words = rules.judge_caption(goal, *item)
        analysis = f"The message is about {words}, which is {'' if helpful else 'not '}helpful for this player."
        word = self.choices[helpful]
        return Judgement(analysis, word, f"<label>{word}</label>")


def read_label(text: str) -> int | None:
    """Returns 1 for FOO, 0 for BAR, None if unreadable.

    The last tagged label decides. Without a tag, it is the whole text if that is a label, else the last stand-alone
    FOO or BAR that is not denied ("not FOO") or one of both named together ("FOO or BAR").
    """
    # ONI: as published, the first "FOO" anywhere wins, also in "this is not FOO ... <label>BAR</label>".
    text = text.replace("\ufffd", "")
    tagged = _TAGGED.findall(text)
    whole = bare(tagged[-1] if tagged else text)
    if whole in (HELPFUL, UNHELPFUL):
        return int(whole == HELPFUL)
    if tagged:
        return None
    text = _BOTH.sub("", text)
    for match in reversed(list(_STANDING_ALONE.finditer(text))):
        if not is_denied(text[: match.start()]):
            return int(match[1] == HELPFUL)
    return None
