"""How often messages were there in an episode, and what that makes of their rewards."""

import collections
from collections.abc import Sequence

import numpy as np


def running_counts(messages: Sequence[bytes]) -> list[int]:
    """How often each was there so far, itself included."""
    counts: collections.Counter[bytes] = collections.Counter()
    found = []
    for message in messages:
        counts[message] += 1
        found.append(counts[message])
    return found


def discount(rewards: np.ndarray, counts: np.ndarray, exponent: float) -> np.ndarray:
    """What `ops.shaping.count_discount` gives, without JAX. Equal shapes."""
    return rewards * np.maximum(1.0, counts) ** -exponent
