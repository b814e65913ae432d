"""The interface of a kind of query: how its prompt is written, its answer read, and what is kept of that."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from oni_jax.types import Annotation, Item


class Rules(Protocol):
    """An environment's rules, a module (`Language.judge_rules`): what its captions are worth for a goal, by its key."""

    def judge_message(self, goal: str, message: bytes) -> tuple[bool, str]:
        """Whether a caption is helpful, and what it tells of, in words."""
        ...

    def judge_pair(self, goal: str, first: bytes, second: bytes) -> int:
        """0 if the first is better, 1 if the second is, 2 if they are alike. A description has several lines."""
        ...

    def goal_of_words(self, words: str) -> str:
        """The goal key that comes nearest to a goal in somebody's own words."""
        ...


class Judgement(NamedTuple):
    """How the rule-based judge answers."""

    analysis: str  # in a sentence
    word: str  # the answer itself, one of `QueryKind.choices` where there are any
    ending: str  # the word in the form that a reasoned answer ends in


class QueryKind(Protocol):
    """A kind of query, which has no state. Its answers are kept as bytes that it alone understands."""

    name: str
    placeholders: Sequence[str]  # in a prompt file's `user`, such as {message}: one for each text of an item
    choices: Sequence[str]  # words that an answer may be restricted to (--llm_answer label); empty: it is free
    openings: Sequence[str]  # what stands right before each text in this project's prompts; the judge finds it by them
    columns: Sequence[str]  # numbers that answers tell of a caption

    def render(self, escaped: str) -> str:
        """A text of an item as it stands in a prompt, of the escaped one."""
        return escaped

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        """What is kept of a server's answer: its text, and the log-probabilities beside it. None: it can't be read."""
        ...

    def is_answer(self, kept: bytes) -> bool:
        """Whether bytes that a store holds are an answer of this kind."""
        ...

    def describe(self, kept: bytes) -> str:
        """The answer in a word or two, for people."""
        ...

    def tally(self, annotations: Iterable[Annotation]) -> Mapping[bytes, tuple[int, ...]]:
        """Caption -> `columns`, of answers that are there."""
        ...

    def judge(self, rules: Rules, goal: str, item: Item, answer_key: str) -> Judgement:
        """The answer of the rule-based judge."""
        ...
