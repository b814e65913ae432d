"""Questions that an LLM answers by one word, yes or no; its log-probabilities say how sure it is."""

import math
from collections.abc import Mapping

from oni_jax.annotation.probabilities import first_token
from oni_jax.annotation.queries.base import Judgement, Rules
from oni_jax.annotation.queries.choices import TwoChoices, bare, decode_label, encode_label
from oni_jax.types import Item

MISSING = -100.0  # log-probability of an answer that is not among the first token's likeliest


class YesNo(TwoChoices):
    """Label 1 is yes, 0 is no; the probability is that of yes. See `QueryKind`, and `is_yes` for other thresholds."""

    name = "yes_no"
    placeholders = ("{question}",)
    choices = ("No", "Yes")
    names = ("no", "yes")
    openings = ("<question>\n",)

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        first = bare(text.strip().partition("\n")[0].partition(" ")[0])
        likeliest = {token: math.log(p) for token, p in first_token(logprobs).items() if p}
        if any(_word(token) in ("YES", "NO") for token in likeliest):
            probability = yes_probability(likeliest)
        elif first in ("YES", "NO"):
            probability = float(first == "YES")
        else:
            return None
        return encode_label(int(probability > 0.5), probability)

    def judge(self, rules: Rules, goal: str, item: Item, answer_key: str) -> Judgement:
        is_yes, words = rules.judge_caption(goal, *item)
        return Judgement(f"The question is about {words}.", self.choices[is_yes], self.choices[is_yes])


def is_yes(kept: bytes, threshold: float) -> bool:
    """Returns whether an answer says yes with a probability above the threshold."""
    return decode_label(kept).probability > threshold


def yes_probability(likeliest: Mapping[str, float]) -> float:
    """Returns the probability of yes, of yes and no: from the log-probabilities of an answer's first token.

    Half, where neither is among them.
    """
    # ELLM: only " Yes" and " No" count, each with a space before it.
    logits = [max([MISSING, *(x for token, x in likeliest.items() if _word(token) == word)]) for word in ("YES", "NO")]
    return 1 / (1 + math.exp(min(700.0, logits[1] - logits[0])))


def _word(token: str) -> str:
    return token.lstrip("Ġ▁ ").rstrip(".").upper()
