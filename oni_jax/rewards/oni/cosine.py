"""ELLM-BoW: the cosine similarity of a caption's words to the goal's (after Du et al. 2023, arXiv:2302.06692)."""

import functools
from collections.abc import Callable

import jax.numpy as jnp

from oni_jax.ops.words import direction
from oni_jax.rewards.base import LookUp
from oni_jax.rewards.combine import Paid, pay
from oni_jax.rewards.oni.word_vectors import check_word_vectors, open_word_vectors
from oni_jax.rewards.registry import RewardContext, threshold
from oni_jax.settings.fields import UserError, caption_text, is_within
from oni_jax.types import Array, PyTree

CACHE_SIZE = 1 << 16  # captions


class CosineScorer(LookUp):
    """The cosine between the summed word vectors of a caption and of the goal; 0 unless above a threshold.

    It learns nothing and asks nothing, so a checkpoint holds none of it. A caption without a known word scores 0.
    """

    def __init__(self, word_vectors: str, goal: str, threshold: float = 0.0):
        """Reads only the beginning of the file `word_vectors`; the rest in `init`, or at first use.

        Raises:
            UserError: the file holds no word vectors, or `threshold` is not a cosine.
        """
        if not is_within(threshold, "[-1, 1]"):
            raise UserError(f"--eps_threshold_quantile {threshold:g}: must be a cosine, in [-1, 1]")
        self._path, self._goal, self._threshold = word_vectors, goal, threshold
        check_word_vectors(word_vectors)

    @functools.cached_property
    def _similarity(self) -> Callable[[bytes], float]:
        vector = open_word_vectors(self._path).vector
        goal = direction(vector, self._goal)
        if goal is None:
            raise UserError(f"--word_vectors {self._path} has no word of the goal {self._goal!r}; name another file")

        @functools.lru_cache(CACHE_SIZE)
        def similarity(caption: bytes) -> float:
            caption_vector = direction(vector, caption_text(caption))
            return 0.0 if caption_vector is None else float(caption_vector @ goal)

        return similarity

    def init(self, key: Array) -> PyTree:
        """Reads the word vectors; no state. Raises UserError when they are damaged or have no word of the goal."""
        self._similarity(b"")
        return ()

    def look_up(self, caption: bytes) -> float:
        return self._similarity(caption)

    def normalise(self, state: PyTree, raw: Array) -> Array:
        return jnp.where(raw > self._threshold, raw, 0.0)


def make(context: RewardContext) -> Paid:
    reward = context.config.reward
    return pay(context, CosineScorer(reward.word_vectors, context.goal(), threshold(context.config)))
