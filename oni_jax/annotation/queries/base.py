"""The base of the kinds of query: each renders its prompts, reads its answers, and encodes them for the store."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from oni_jax.host.plugins import plugin_error
from oni_jax.types import Annotation, Item

MAX_CHARS = 1000  # characters of a recorded goal


def check_goals(record: Any) -> list[str]:
    """Returns a record that is a list of goals. Raises ValueError, TypeError, AttributeError: it is none."""
    if not isinstance(record, list) or not all(len(goal) <= MAX_CHARS and goal.isprintable() for goal in record):
        raise ValueError("no list of goals, each a short text of one line")
    return record


class Rules(Protocol):
    """An environment's rules, a module (`Language.judge_rules`): values of its captions for a goal, by its key.

    `judge_segments` and `write_potential` are there where the environment has prompts of their kinds.
    """

    def judge_caption(self, goal: str, message: bytes) -> tuple[bool, str]:
        """Returns whether a caption is helpful, and a phrase for what it reports."""
        ...

    def judge_pair(self, goal: str, first: bytes, second: bytes) -> int:
        """Returns 0 if the first is better, 1 if the second is, 2 for a tie. Descriptions have several lines."""
        ...

    def judge_segments(self, first: bytes, second: bytes) -> int:
        """Returns 0 if the first segment is better, 1 if the second is, 2 for a tie; see `segments.captions`."""
        ...

    def write_potential(self) -> str:
        """Returns the code of a potential, see `potentials.sandbox`."""
        ...

    def write_goals(self, segment: bytes) -> Sequence[str]:
        """Returns goals for the end of a segment, see `potentials.goals`. Not every environment's rules have it."""
        ...

    def suggest_goals(self, caption: bytes) -> Sequence[str]:
        """Returns goals that one could sensibly pursue in a state. Not every environment's rules have it."""
        ...

    def goal_of_words(self, words: str) -> str:
        """Returns the goal key that is nearest to a goal in free text. Not every environment's rules have it."""
        ...


class Judgement(NamedTuple):
    """An answer of the rule-based judge."""

    analysis: str  # a sentence
    word: str  # the answer itself, one of `QueryKind.choices` where there are any
    ending: str  # the word in the form that a reasoned answer ends in


class QueryKind:
    """A stateless kind of query. Answers are stored as bytes, in the kind's encoding.

    A kind about one caption needs `name`, `read` and a prompt. The other defaults: an answer is kept as text, it is
    free of choices, and the rule-based judge can't give it.
    """

    name: str
    placeholders: Sequence[str] = ("{caption}",)  # names in a prompt file's `user`: one for each caption of an item
    choices: Sequence[str] = ()  # words that an answer may be restricted to (--llm_answer label); empty: free text
    openings: Sequence[str] = ()  # text right before each caption in this project's prompts; the judge parses by it
    columns: Sequence[str] = ()  # names of the numbers in `tally`
    texts: Sequence[str] = ()  # names of further texts that its prompt files hold
    prompt: Mapping[str, Any] = {}  # prompt for an environment without a file of this kind
    rewrites: bool = False  # captions are asked about as the prompt file's `rewrite` has them
    asks_as: str = ""  # the kind whose prompt files and stored answers it uses; empty: this kind
    goals: Sequence[str] = ()  # keys of those that one answer is of; empty: the prompt has one goal, or none

    def render(self, escaped: str) -> str:
        """Renders an escaped caption in a prompt."""
        return escaped

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        """Encodes a server's answer for the store, from its text and log-probabilities. None: unreadable.

        The text has no reasoning and no turn that the model made up. The first complete answer in it counts.
        """
        raise NotImplementedError

    def read_word(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        """Encodes an answer where one of `choices` alone was asked for (--llm_answer label); see `read`."""
        return self.read(text, logprobs, answer_key)

    def read_cut_off(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        """Encodes an answer that ended at the limit of its tokens (--llm_max_tokens); see `read`."""
        return self.read(text, logprobs, answer_key)

    def read_word_cut_off(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        """Encodes an answer that both apply to; see `read_word` and `read_cut_off`."""
        return self.read_word(text, logprobs, answer_key)

    @property
    def kept_as(self) -> "QueryKind":
        """The kind of the answers of one goal, as they are stored."""
        return self

    def split(self, kept: bytes) -> Sequence[bytes | None]:
        """Returns the answer of each goal; None: it has none."""
        return [kept]

    def is_answer(self, kept: bytes) -> bool:
        """Returns whether stored bytes are an answer of this kind."""
        return bool(kept)

    def describe(self, kept: bytes) -> str:
        """Describes an answer in a word or two, for display."""
        return kept.decode("utf-8", "replace")

    def read_as(self, kept: bytes) -> Sequence[str]:
        """Returns the parsed answer for display: its label, or each of its goals."""
        return [self.describe(kept)]

    def to_record(self, kept: bytes) -> object:
        """Returns an answer in JSON's terms, for files of recorded answers; its text."""
        return kept.decode()

    def from_record(self, record: Any) -> bytes:
        """Inverts `to_record`. Raises ValueError, TypeError or AttributeError: it is no answer."""
        return record.encode()

    def as_text(self, kept: bytes) -> str:
        """Returns a text that `read` reads as this answer."""
        return kept.decode("utf-8", "replace")

    def probability(self, kept: bytes) -> float | None:
        """Returns an answer's probability. None: it has none."""
        return None

    def tally(self, annotations: Iterable[Annotation]) -> Mapping[bytes, tuple[int, ...]]:
        """Sums up annotations that have an answer: caption -> `columns`."""
        return {}

    def judge(self, rules: Rules, goal: str, item: Item, answer_key: str) -> Judgement:
        """Answers by the rules. Kinds that don't override it are not asked of the judge."""
        raise NotImplementedError

    @property
    def module(self) -> str:
        """The module that it was written in."""
        return type(self).__module__


@contextlib.contextmanager
def blaming(kind: QueryKind, what: str) -> Iterator[None]:
    """Raises UserError that names the module of a kind of query for an error in its function `what`."""
    try:
        yield
    except Exception as error:
        raise plugin_error(kind.module, f"`{what}` of the query {kind.name}", error) from error
