"""A potential written as code: an LLM that knows a world writes a function of what is seen."""

import re

from oni_jax.annotation.queries.base import Judgement, QueryKind, Rules
from oni_jax.types import Item

_BLOCK = re.compile(r"```python[ \t]*\r?\n(.*?)```", re.DOTALL)


class Code(QueryKind):
    """Answers are the code of `compute_reward`. See `QueryKind`."""

    name = "code"
    placeholders = ()
    openings = ("compute_reward(obs, past_obs, past_actions)",)
    texts = ("improve", "failed")

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        code = code_in(text)
        return code.encode() if code is not None else None

    def describe(self, kept: bytes) -> str:
        return f"{len(kept.splitlines())} lines"

    def judge(self, rules: Rules, goal: str, item: Item, answer_key: str) -> Judgement:
        code = rules.write_potential()
        return Judgement("Rules that were written beforehand, whatever was seen.", code, f"```python\n{code}```")


def code_in(answer: str) -> str | None:
    """Returns the first whole block of Python in an LLM's answer; None: there is none."""
    # BK: from the first fence to the last one, with what is said between two blocks.
    block = _BLOCK.search(answer)
    return block[1] if block else None
