"""What the LLM says of a message, for people to read: its label, or what the rule-based judge would say."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from oni_jax.annotation.judge_rules import goal_of_words, judge_message
from oni_jax.config import AnnotationConfig, Config

HELPFUL, NOT_HELPFUL = "helpful", "not helpful"


class Label(NamedTuple):
    """A label of a message."""

    text: str
    source: str
    helpful: bool | None  # None: compared with others only


class Labels:
    """The labels that a run's LLM gave; of other messages what the judge's rules say.

    Args:
      annotation: tells the goal.
      known: message -> the numbers of `inspection.LABEL_COLUMNS`.
    """

    def __init__(self, annotation: AnnotationConfig, known: Mapping[bytes, tuple[int, ...]]):
        self._goal = goal_of_words(annotation.goal) if annotation.goal else annotation.goal_key
        self._known = known

    def of(self, message: bytes) -> Label | None:
        """None: of no message."""
        if not message:
            return None
        known = self._known.get(message)
        if known is None:
            helpful, words = judge_message(self._goal, message)
            return Label(f"{HELPFUL if helpful else NOT_HELPFUL}: {words}", "rule-based judge", helpful)
        if len(known) == 1:
            return Label(HELPFUL if known[0] else NOT_HELPFUL, "label store", bool(known[0]))
        better, worse, tie = known
        return Label(f"better in {better} pairs, worse in {worse}, {tie} ties", "label store", None)


def run_labels(folder: str, config: Config) -> Labels:
    """Of the run in a folder. Raises UserError: its label store can't be read."""
    from oni_jax.inspection import labels_of_messages, read_annotations  # brings JAX, which takes seconds
    from oni_jax.rewards.registry import reward_type

    has_store = bool(reward_type(config).prompt_kind) and os.path.isdir(folder)
    return Labels(config.annotation, labels_of_messages(read_annotations(config, folder)) if has_store else {})
