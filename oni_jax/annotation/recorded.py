"""Recorded answers of a language model; they are looked up, without an LLM."""

from collections.abc import Mapping
from typing import NamedTuple

from oni_jax.types import Item


class Recorded(NamedTuple):
    """A model's answers to one kind of query under one goal."""

    model: str = ""  # its name in the label store
    answers: Mapping[Item, bytes] = {}  # as the kind of query encodes them


NOTHING = Recorded()
