"""Annotators: the arrays that they read, the names of their preference files, and the rules that need no LLM."""

import hashlib
import os
from collections.abc import Callable, Mapping

import numpy as np

from oni_jax.offline.dataset import PairDataset
from oni_jax.offline.pair_config import PreferenceConfig
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.types import FIRST, SECOND, TIE


def wanted_keys(preference: PreferenceConfig) -> list[str]:
    """Returns the keys of the arrays that an annotator reads."""
    if preference.annotator != "llm":
        return ["data/rewards" if preference.annotator == "return" else "info/score"]
    return ["data/message"] * preference.use_messages + ["data/blstats"] * preference.use_blstats


def file_name(preference: PreferenceConfig, annotation: AnnotationConfig) -> str:
    """Returns the name of a preference file, without .npy."""
    if preference.annotator != "llm":
        return preference.annotator
    goal, version = annotation.goal_key, annotation.prompt_version
    if annotation.goal:
        goal = f"goal-{hashlib.sha256(annotation.goal.encode()).hexdigest()[:8]}"
    if annotation.prompt_file:
        version = os.path.splitext(os.path.basename(annotation.prompt_file))[0]
    model = annotation.llm_model.replace("/", "-")
    return f"{model}_msg_{preference.use_messages}_bl_{preference.use_blstats}_{goal}_{version}"


def better(values: np.ndarray) -> np.ndarray:
    """Labels pairs by the higher value: [P, 2] numbers -> [P] int8."""
    return np.select([values[:, 0] > values[:, 1], values[:, 0] < values[:, 1]], [FIRST, SECOND], TIE).astype(np.int8)


RULES: Mapping[str, Callable[[PreferenceConfig, PairDataset], np.ndarray]] = {
    "score": lambda preference, data: better(data.numbers("info/score")),
    "return": lambda preference, data: better(data.numbers("data/rewards").reshape(data.num_pairs, 2, -1).sum(2)),
    "random": lambda preference, data: np.random.default_rng(preference.seed).integers(
        FIRST, TIE, data.num_pairs, np.int8
    ),
}
