"""The makers of a run's labels: LLMs, or the rule-based judge."""

import os

from oni_jax.annotation.judge_answers import describe_judge
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.prompts import load_prompt
from oni_jax.answers.answerer import models_of
from oni_jax.envs.registry import find_environment
from oni_jax.rewards.registry import questions
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError


def store_path(config: Config, folder: str) -> str:
    """Returns the path of the label store of the run in a folder."""
    return config.annotation.label_store or os.path.join(folder, "labels.sqlite")


def asked(config: Config, short: bool = False) -> dict[str, str]:
    """Returns model -> who it is, in words, of those that a run asks by its settings; none if its plugin is missing.

    short: in few words, without the server.
    """
    try:
        language, of_models = find_environment(config.env).language, dict[str, str]()
        for own, kind in questions(config):
            of_models |= models_of(own, language, kind)
    except UserError:
        return {}
    if short:
        return {model: describe_judge(model).partition(",")[0] or model for model in of_models}
    return {model: words or describe_judge(model) for model, words in of_models.items()}


def labels_by(config: Config, folder: str) -> str:
    """Returns who made the labels of the run in a folder, in words; empty: it asks for none, or its plugin is missing.

    Several have their fractions of the labels. In a store of the run's own, these may be models that it has asked
    earlier; in one that runs share, only those of its settings are known to be its own.
    """
    named, stored = asked(config), _stored(config, folder)
    if config.annotation.label_store:
        stored = {model: number for model, number in stored.items() if model in named}
    texts = {model: named.get(model) or _words(model) for model in stored or named}
    if len(stored) < 2:
        return ", ".join(texts.values())
    return ", ".join(f"{text} ({stored[model] / sum(stored.values()):.1%})" for model, text in texts.items())


def _words(model: str) -> str:
    return describe_judge(model) or model


def _stored(config: Config, folder: str) -> dict[str, int]:
    """Counts the labels by their model that the store holds for the run's prompts; {} where it can't be read."""
    path = store_path(config, folder)
    if not os.path.exists(path):
        return {}
    try:
        language = find_environment(config.env).language
        store = LabelStore(path)
        try:
            return store.counts([load_prompt(own, language, kind).digest for own, kind in questions(config)])
        finally:
            store.close()
    except (OSError, UserError):
        return {}
