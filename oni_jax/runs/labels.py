"""A run's labels in its store, and their makers: LLMs, or the rule-based judge."""

import os

from oni_jax.annotation import label_store
from oni_jax.annotation.judge_answers import describe_judge
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.annotation.stored import stored_answers
from oni_jax.answers.answerer import models_of, recorded_answers
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.types import Annotation


def store_path(config: Config, folder: str) -> str:
    return config.annotation.label_store or os.path.join(folder, "labels.sqlite")


def read_annotations(plan: Plan, folder: str) -> list[Annotation]:
    """Reads the annotations by a run's models and prompts from its label store; without one, the recorded answers.

    Raises:
        UserError: it can't be read.
    """
    path, is_named = store_path(plan.config, folder), plan.config.annotation.label_store
    if not plan.questions:
        return []
    if not is_named and not os.path.exists(path):
        of_each = [recorded_answers(settings, plan.language, kind) for settings, kind in plan.questions]
        return [Annotation(item, x, number) for number, rows in enumerate(of_each) for item, x in rows.items()]
    if not os.path.exists(path):
        raise UserError(f"label store {path}: no such file; start in the folder in which the run was started")
    found = list[Annotation]()
    with label_store.opened(path) as store:
        for number, (settings, kind) in enumerate(plan.questions):
            models = models_of(settings, plan.language, kind)
            held = stored_answers(store, QUERIES[kind], models, plan.prompt(settings, kind).digest)
            found += [row._replace(question=number) for row in held]
    return found


def asked(plan: Plan, short: bool = False) -> dict[str, str]:
    """Returns model -> who it is, in words, of those that a run asks by its settings; none if its plugin is missing.

    short: few words, without the server.
    """
    of_models = dict[str, str]()
    try:
        for settings, kind in plan.questions:
            of_models |= models_of(settings, plan.language, kind)
    except UserError:
        return {}
    if short:
        return {model: describe_judge(model).partition(",")[0] or model for model in of_models}
    return {model: words or describe_judge(model) for model, words in of_models.items()}


def labels_by(plan: Plan, folder: str) -> str:
    """Returns who made the labels of the run in a folder, in words; empty: it asks for none, or its plugin is missing.

    Several have their fractions of the labels. In a store of one run, these may be models that it has asked
    earlier; in one that runs share, only those of its settings are known to be its models.
    """
    named, stored = asked(plan), _stored(plan, folder)
    if plan.config.annotation.label_store:
        stored = {model: number for model, number in stored.items() if model in named}
    texts = {model: named.get(model) or _words(model) for model in stored or named}
    if len(stored) < 2:
        return ", ".join(texts.values())
    return ", ".join(f"{text} ({stored[model] / sum(stored.values()):.1%})" for model, text in texts.items())


def _words(model: str) -> str:
    return describe_judge(model) or model


def _stored(plan: Plan, folder: str) -> dict[str, int]:
    """Counts the labels by their model that the store holds for the run's prompts; {} where it can't be read."""
    path = store_path(plan.config, folder)
    if not os.path.exists(path):
        return {}
    try:
        with label_store.opened(path) as store:
            return store.counts([plan.prompt(settings, kind).digest for settings, kind in plan.questions])
    except (OSError, UserError):
        return {}
