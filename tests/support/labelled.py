"""Answers that are labels, as kinds of query with choices keep them."""

from oni_jax.annotation.queries.choices import encode_label
from oni_jax.types import Annotation, Item


def labelled(item: Item, label: int | None, probability: float = 1.0, question: int = 0) -> Annotation:
    """None: without an answer."""
    return Annotation(item, None if label is None else encode_label(label, probability), question)
