"""Crafter's score."""

import numpy as np


def achievement_score(rates: np.ndarray) -> np.ndarray:
    """Returns the score in percent of achievements' rates [..., A]: the geometric mean of 1 + rate in percent, less 1.

    A way from 0 % to 1 % counts for as much as one from 1 % to 3 %.
    Source: Hafner, Benchmarking the Spectrum of Agent Capabilities (2022), section 3.3.
    """
    return np.expm1(np.log1p(100 * rates).mean(axis=-1))
