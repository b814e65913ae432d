"""Answers that are labels, as kinds of query with choices keep them; and the types of reward that learn from them."""

from oni_jax.annotation.queries.choices import encode_label
from oni_jax.rewards.registry import REWARD_TYPES
from oni_jax.types import Annotation, Item

# Without those that tests register.
BUILT_IN = [name for name, kind in REWARD_TYPES.items() if kind.make.__module__.startswith("oni_jax.")]


def labelled(item: Item, label: int, probability: float = 1.0) -> Annotation:
    return Annotation(item, encode_label(label, probability))
