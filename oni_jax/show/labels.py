"""Labels of messages, for people to read: from the LLM, or from the rule-based judge where it answers."""

from collections.abc import Mapping
from typing import NamedTuple

from oni_jax.annotation.judge_answers import goal_of_words, load_rules
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.answers.answerer import find_answerer
from oni_jax.envs.base import Language
from oni_jax.rewards.registry import reward_type, term_labels
from oni_jax.runs.plan import Plan
from oni_jax.runs.run import Run
from oni_jax.settings.annotation import JUDGE, AnnotationConfig
from oni_jax.settings.config import Config
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import Annotation

HELPFUL, NOT_HELPFUL = "helpful", "not helpful"
LABELLING = ("classification", "ranking")  # kinds of query


class Label(NamedTuple):
    text: str
    source: str
    helpful: bool | None  # None: only compared with others


class Labels:
    """The labels of a run's LLM, or recorded ones; where the rule-based judge answers, its labels for other messages.

    Args:
      annotation: has the goal.
      language: language of the environment.
      known: message -> the numbers of `QueryKind.columns`.
      source: source of these labels.
    """

    def __init__(
        self,
        annotation: AnnotationConfig,
        language: Language | None,
        known: Mapping[bytes, tuple[int, ...]],
        source: str = "label store",
    ):
        has_rules = language and language.judge_rules
        is_judged = has_rules and find_answerer(annotation, language, "classification").asks == JUDGE
        self._rules, self._source = load_rules(language) if is_judged else None, source
        by_words = self._rules and annotation.goal
        self._goal = goal_of_words(self._rules, annotation.goal) if self._rules and by_words else annotation.goal_key
        self._known = known

    def of(self, message: bytes) -> Label | None:
        """Returns a message's label; None for an empty message, and where neither gives one."""
        known = self._known.get(message)
        if not message or (known is None and self._rules is None):
            return None
        if known is None:
            assert self._rules
            helpful, words = self._rules.judge_caption(self._goal, message)
            return Label(f"{HELPFUL if helpful else NOT_HELPFUL}: {words}", "rule-based judge", helpful)
        if len(known) == 1:
            return Label(HELPFUL if known[0] else NOT_HELPFUL, self._source, bool(known[0]))
        better, worse, tie = known
        return Label(f"better in {better} pairs, worse in {worse}, {tie} ties", self._source, None)


def labels_of(env: EnvConfig) -> Labels:
    """Returns the labels of an environment without a run: recorded ones, else the judge's."""
    annotation, kind, language = AnnotationConfig(), QUERIES["classification"], Plan(Config(env)).language
    file = find_answerer(annotation, language, kind.name).file if language else None
    if not file:
        return Labels(annotation, language, {})
    known = kind.tally(Annotation(item, answer) for item, answer in file.under(annotation.goal_key).items())
    return Labels(annotation, language, known, file.header.made_by)


def run_labels(run: Run) -> Mapping[str, Labels]:
    """Returns the labels of a run, by the reward that asks for them; under "" where nothing is asked.

    Raises:
        UserError: its label store can't be read.
    """
    config, asked, language = run.plan.config, run.plan.questions, run.plan.language
    if not asked:
        return {"": Labels(config.annotation, language, {})}
    annotations, found, terms = run.annotations(), {}, config.terms_by_goal()
    for name, term in zip(term_labels(config), terms, strict=True):
        kind = reward_type(term).query
        if kind in LABELLING:
            number = asked.index((term.annotation, kind))
            known = QUERIES[kind].tally(a for a in annotations if a.question == number)
            found[name] = Labels(term.annotation, language, known)
    return found
