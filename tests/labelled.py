"""Answers that are labels, as kinds of query with choices keep them."""

from oni_jax.annotation.queries.choices import encode_label
from oni_jax.types import Annotation, Item


def labelled(item: Item, label: int, probability: float = 1.0) -> Annotation:
    return Annotation(item, encode_label(label, probability))
