"""Words of texts, the direction of their vectors, and their hashed counts."""

import hashlib
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


def hashed_words(text: str, size: int) -> np.ndarray:
    """Returns the words' counts, hashed to [size] float32 with a sign each, scaled to length 1; zeros without words."""
    counts = np.zeros(size, np.float32)
    for word in words_of(text):
        digest = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
        counts[(digest >> 1) % size] += 1 - 2 * (digest & 1)
    return counts / max(1e-6, float(np.linalg.norm(counts)))
