"""What asks about NetHack's messages, and what answers."""

from oni_jax.annotation import prompts
from oni_jax.annotation.judge import EmbeddedJudge, JudgeOptions
from oni_jax.annotation.judge_answers import Reader
from oni_jax.annotation.labeller import Store
from oni_jax.annotation.prompts import Prompt
from oni_jax.annotation.service import AnnotationService
from oni_jax.config import AnnotationConfig
from oni_jax.envs.nethack import ENVIRONMENT

LANGUAGE = ENVIRONMENT.language
judge_prompt = Reader(LANGUAGE).judge_prompt


def load_prompt(config: AnnotationConfig, kind: str = "classification") -> Prompt:
    return prompts.load_prompt(config, LANGUAGE, kind)


def goal_text(config: AnnotationConfig, kind: str = "classification") -> str:
    return prompts.goal_text(config, LANGUAGE, kind)


def start_judge(options: JudgeOptions | None = None) -> EmbeddedJudge:
    return EmbeddedJudge(LANGUAGE, options)


def start_service(config: AnnotationConfig, store: Store, kind: str = "classification") -> AnnotationService:
    return AnnotationService(config, load_prompt(config, kind), store)
