"""Numbers from outside, as float32: a finite one stays finite."""

from collections.abc import Sequence
from typing import Any

import numpy as np

MAX_REWARD = 1e15  # the sum of the squares of a million such rewards is still a float32


def bounded(values: "np.ndarray | Sequence[Any]") -> np.ndarray:
    """Returns numbers as float32, finite ones clipped to +-MAX_REWARD; NaN and infinite ones stay, as mistakes do."""
    try:
        wide = np.asarray(values, np.float64)
    except OverflowError:  # integers overflow
        wide = np.array([max(-MAX_REWARD, min(MAX_REWARD, x)) for x in values], np.float64)
    return np.where(np.isfinite(wide), np.clip(wide, -MAX_REWARD, MAX_REWARD), wide).astype(np.float32)
