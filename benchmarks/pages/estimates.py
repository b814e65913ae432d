"""Statistics of studies: what a curve comes to, means over seeds with their intervals, and differences of these."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

TENTH = 10  # a curve's end is the mean of its last tenth
ALPHA = 0.05  # level of intervals, and of all main contrasts together


class Estimate(NamedTuple):
    """A mean over seeds, or a difference of two, with its 95 % interval."""

    mean: float
    low: float = math.nan  # NaN: of one seed
    high: float = math.nan
    p_value: float = math.nan  # p-value of no difference

    def shown(self, sign: str = "") -> str:
        """Formats the estimate to two digits of the interval's width; `sign` is "+" for differences."""
        width = self.high - self.low
        if math.isnan(width) or not width:
            return f"{self.mean:{sign}.4g}"
        digits = max(0, 1 - math.floor(math.log10(width)))
        return f"{self.mean:{sign}.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def end(curve: np.ndarray) -> float:
    """Returns the mean of a curve's last tenth: of more episodes than its last point, and of more than one each."""
    return float(np.nanmean(curve[-max(1, len(curve) // TENTH) :]))


def over_the_run(curve: np.ndarray) -> float:
    """Returns the mean of all of a curve: more for what learns sooner."""
    return float(np.nanmean(curve))


def mean(values: Sequence[float], bounds: tuple[float, float] = (-math.inf, math.inf)) -> Estimate:
    """Estimates a mean over seeds, with Student's interval, cut at the bounds of what is possible."""
    about = float(np.mean(values))
    if len(values) < 2:
        return Estimate(about)
    half = float(stats.sem(values) * stats.t.ppf(1 - ALPHA / 2, len(values) - 1))
    return Estimate(about, max(bounds[0], about - half), min(bounds[1], about + half))


def difference(values: Sequence[float], others: Sequence[float], paired: bool = False) -> Estimate | None:
    """Estimates how far a mean is above another, with Welch's interval, or Student's of pairs.

    None: too few seeds, or no spread.
    """
    if min(len(values), len(others)) < 2 or not np.std(values) + np.std(others):
        return None
    test: Any = stats.ttest_rel(values, others) if paired else stats.ttest_ind(values, others, equal_var=False)
    interval = test.confidence_interval(1 - ALPHA)
    return Estimate(
        float(np.mean(values) - np.mean(others)), float(interval.low), float(interval.high), float(test.pvalue)
    )


def distinct(p_values: Sequence[float]) -> list[bool]:
    """Returns which differences remain by Holm's correction: without any, one remains with probability ALPHA."""
    order = np.argsort(p_values)
    small = np.asarray(p_values)[order] <= ALPHA / np.arange(len(p_values), 0, -1)
    found = np.zeros(len(p_values), bool)
    found[order] = np.cumprod(small).astype(bool)
    return found.tolist()
