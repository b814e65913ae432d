"""Clients that ask about NetHack's messages, and servers that answer."""

from collections.abc import Iterable

from oni_jax.annotation import prompts
from oni_jax.annotation.answers import Reply
from oni_jax.annotation.judge import EmbeddedJudge, JudgeOptions
from oni_jax.annotation.judge_answers import Reader
from oni_jax.annotation.labeller import Store
from oni_jax.annotation.prompts import Prompt
from oni_jax.annotation.queries.choices import decode_label
from oni_jax.annotation.service import AnnotationService, Question
from oni_jax.envs.nethack import ENVIRONMENT
from oni_jax.host.restarts import Restarts
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.types import Annotation, Item, Query

LANGUAGE = ENVIRONMENT.language
KINDS = ("classification", "ranking")  # kinds of query about its messages
judge_prompt = Reader(LANGUAGE).judge_prompt


def load_prompt(config: AnnotationConfig, kind: str = "classification") -> Prompt:
    return prompts.load_prompt(config, LANGUAGE, kind)


def goal_text(config: AnnotationConfig, kind: str = "classification") -> str:
    return prompts.goal_text(config, LANGUAGE, kind)


def start_judge(options: JudgeOptions | None = None, restarts: Restarts | None = None) -> EmbeddedJudge:
    return EmbeddedJudge(LANGUAGE, options, restarts=restarts)


def question(config: AnnotationConfig, kind: str = "classification") -> Question:
    return Question(config, load_prompt(config, kind))


def start_service(config: AnnotationConfig, store: Store, *kinds: str) -> AnnotationService:
    """One that asks a question of each kind, of classification where none is named."""
    return AnnotationService([question(config, kind) for kind in kinds or ("classification",)], store)


def queries(items: Iterable[Item], question: int = 0) -> list[Query]:
    return [Query(item, question) for item in items]


def label_of(answered: Annotation | Reply) -> int | None:
    return None if answered.answer is None else decode_label(answered.answer).label


def probability_of(answered: Annotation | Reply) -> float:
    assert answered.answer is not None
    return decode_label(answered.answer).probability
