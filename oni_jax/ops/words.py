"""Words of texts, and the direction of their vectors."""

import re
from collections.abc import Callable

import numpy as np

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def words_of(text: str) -> list[str]:
    """Returns runs of letters and digits in lower case, apostrophes inside them included: "Don't go!" is don't, go."""
    return _WORD.findall(text.lower())


def direction(vector: Callable[[str], np.ndarray | None], text: str) -> np.ndarray | None:
    """Returns the words' summed vectors, scaled to length 1; None without a known word, or where they cancel out."""
    known = [word_vector for word in words_of(text) if (word_vector := vector(word)) is not None]
    if not known:
        return None
    total = np.stack(known).sum(axis=0, dtype=np.float64)
    length = np.linalg.norm(total)
    return total / length if length > 0 else None
