"""Statistics of episodes, with confidence intervals."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from oni_jax.ops.achievements import achievement_score

QUANTILES = (0.05, 0.25, 0.75, 0.95)
NUM_RESAMPLES = 10_000
RESAMPLED_AT_ONCE = 1 << 22  # numbers drawn, which bounds the memory


class Interval(NamedTuple):
    """A 95 % confidence interval: the bootstrap's of a mean, Wilson's of a fraction, Newcombe's of a difference."""

    low: float
    high: float


class Summary(NamedTuple):
    """Statistics of one measure over E episodes."""

    mean: float
    interval: Interval | None  # interval of the mean; None with one episode
    median: float
    quantiles: tuple[float, ...]  # QUANTILES


class Fraction(NamedTuple):
    """A count of E episodes, and its fraction."""

    count: int
    fraction: float
    interval: Interval


class Score(NamedTuple):
    """Crafter's score of episodes' achievements, in percent."""

    value: float
    interval: Interval | None  # None with one episode


class Difference(NamedTuple):
    """Difference of one measure between two agents on the same episodes."""

    mean: float  # mean of the first agent minus that of the second
    interval: Interval | None  # paired; None with one episode


def summarise(values: Sequence[float] | np.ndarray) -> Summary:
    """Summarises values [E], E >= 1."""
    array = np.asarray(values, np.float64)
    quantiles = tuple(np.quantile(array, QUANTILES).tolist())
    return Summary(float(array.mean()), bootstrap_interval(array), float(np.median(array)), quantiles)


def difference(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> Difference:
    """Returns the paired difference of first [E] and second [E], E >= 1, over the same episodes in the same order."""
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    return Difference(float(differences.mean()), bootstrap_interval(differences))


def fraction_difference(first: np.ndarray, second: np.ndarray) -> Difference:
    """Returns the paired difference of two fractions, of first [E] and second [E] bool; see `difference`.

    The bootstrap would give [0, 0] where no pair differs, even for few pairs. Source: Newcombe, Improved confidence
    intervals for the difference between binomial proportions based on paired data (1998), method 10.
    """
    num, sides = len(first), [fraction(int(side.sum()), len(side)) for side in (first, second)]
    (_, p1, (low1, high1)), (_, p2, (low2, high2)) = sides
    agreement = (first & second).sum() * (~first & ~second).sum() - (first & ~second).sum() * (~first & second).sum()
    if agreement > 0:
        agreement = max(0.0, agreement - num / 2)
    spread = num**2 * math.sqrt(p1 * (1 - p1) * p2 * (1 - p2))
    correlation = float(agreement) / spread if spread else 0.0

    def length(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * correlation * a * b + b * b))

    below, above = length(p1 - low1, high2 - p2), length(high1 - p1, p2 - low2)
    return Difference(p1 - p2, Interval(p1 - p2 - below, p1 - p2 + above))


def summarise_achievements(achieved: np.ndarray) -> Score:
    """Returns the score of achieved [E, A] bool, E >= 1."""
    num = len(achieved)
    value = float(achievement_score(achieved.mean(axis=0)))
    if num < 2:
        return Score(value, None)
    counts = np.random.default_rng(0).multinomial(num, np.full(num, 1 / num), NUM_RESAMPLES // 5)
    resampled = achievement_score(counts @ achieved / num)
    return Score(value, Interval(*np.quantile(resampled, (0.025, 0.975)).tolist()))


def bootstrap_interval(values: np.ndarray) -> Interval | None:
    """Returns the percentile bootstrap's 95 % interval of the mean of values [E]; None for E = 1.

    The seed is fixed: equal values give equal intervals, and all measures of the same episodes have the same resamples.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    if len(values) < 2:
        return None
    low, high = stratified_bootstrap([values], lambda rows: rows.mean(axis=-1), NUM_RESAMPLES)
    return Interval(float(low), float(high))


def stratified_bootstrap(
    strata: Sequence[np.ndarray], statistic: Callable[[np.ndarray], np.ndarray], num_resamples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the percentile bootstrap's 95 % interval of a statistic of runs, resampled within each stratum.

    Source: Agarwal et al., Deep reinforcement learning at the edge of the statistical precipice (2021), section 4.1.

    Args:
        strata: [..., N] each: of a task's N runs; the leading axes are those of several measures, the same in all.
        statistic: [..., sum of N] -> [...].
        num_resamples: with a fixed seed: all measures have the same resamples.
    """
    rng, num = np.random.default_rng(0), sum(stratum.shape[-1] for stratum in strata)
    batch = max(1, RESAMPLED_AT_ONCE // (num * strata[0][..., 0].size))
    found = []
    for start in range(0, num_resamples, batch):
        rows = min(batch, num_resamples - start)
        drawn = [stratum[..., rng.integers(0, stratum.shape[-1], (rows, stratum.shape[-1]))] for stratum in strata]
        found.append(statistic(np.concatenate(drawn, axis=-1)))
    low, high = np.quantile(np.concatenate(found, axis=-1), (0.025, 0.975), axis=-1)
    return low, high


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Returns the mean of the middle half along the last axis: of N runs the N // 4 lowest and highest are left out.

    Source: as of `stratified_bootstrap`.
    """
    cut = values.shape[-1] // 4
    return np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(axis=-1)


def fraction(count: int, total: int) -> Fraction:
    """Returns `count` of `total` >= 1 episodes as a fraction, with Wilson's 95 % interval.

    The bootstrap would give [0, 0] for a count of 0, even for few episodes. Source: Wilson, Probable
    inference, the law of succession, and statistical inference (1927).
    """
    low, high = stats.binomtest(count, total).proportion_ci(method="wilson")
    return Fraction(count, count / total, Interval(float(low), float(high)))
