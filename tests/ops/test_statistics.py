"""Error bars against what is known of them."""

import numpy as np
import pytest
import scipy

from oni_jax.ops.statistics import (
    Interval,
    bootstrap_interval,
    difference,
    fraction,
    fraction_difference,
    interquartile_mean,
    stratified_bootstrap,
    summarise,
)


def test_a_summary():
    summary = summarise([4.0, 1.0, 3.0, 2.0, 10.0])
    assert (summary.mean, summary.median) == (4.0, 3.0)
    assert summary.quantiles == pytest.approx((1.2, 2.0, 4.0, 8.8))
    assert summary.interval and summary.interval.low < 4.0 < summary.interval.high


def test_one_episode_has_no_interval():
    assert summarise([4.0]).interval is None
    assert difference([4.0], [3.0]) == (1.0, None)


def test_the_interval_is_that_of_the_normal_approximation():
    values = np.random.default_rng(1).normal(5.0, 2.0, size=400)
    low, high = bootstrap_interval(values) or (0, 0)
    half = 1.96 * values.std() / np.sqrt(400)
    assert low == pytest.approx(values.mean() - half, abs=0.02)
    assert high == pytest.approx(values.mean() + half, abs=0.02)


def test_95_percent_of_the_intervals_hold_the_mean():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(200):
        low, high = bootstrap_interval(rng.exponential(size=60)) or (0, 0)
        covered += low <= 1.0 <= high
    assert 0.87 < covered / 200 < 0.99


def test_equal_values_equal_intervals_whatever_the_memory(monkeypatch):
    from oni_jax.ops import statistics

    values = np.random.default_rng(3).normal(size=50)
    before = bootstrap_interval(values)
    assert bootstrap_interval(values.copy()) == before
    monkeypatch.setattr(statistics, "RESAMPLED_AT_ONCE", 50 * 700)  # pieces of 700 resamples
    assert bootstrap_interval(values) == before


def test_runs_are_resampled_within_their_task():
    """Tasks whose runs agree leave nothing unknown, however much the tasks differ."""
    tasks = [np.full((2, 3), 1.0), np.full((2, 5), 9.0)]
    low, high = stratified_bootstrap(tasks, lambda runs: runs.mean(axis=-1), 100)
    assert low.tolist() == high.tolist() == [6.0, 6.0]
    tasks[0][1] = [0.0, 1.0, 2.0]
    low, high = stratified_bootstrap(tasks, lambda runs: runs.mean(axis=-1), 1000)
    assert low[0] == high[0] == 6.0 and low[1] < 6.0 < high[1]


@pytest.mark.parametrize("num", [1, 3, 4, 7, 10])
def test_the_interquartile_mean_is_the_trimmed_mean(num):
    values = np.random.default_rng(num).normal(size=(2, num))
    assert interquartile_mean(values) == pytest.approx(scipy.stats.trim_mean(values, 0.25, axis=1))


def test_pairs_tell_more_than_two_means():
    rng = np.random.default_rng(4)
    luck = rng.normal(scale=10.0, size=100)
    first, second = luck + 1.0 + rng.normal(scale=0.1, size=100), luck
    found = difference(first, second)
    assert found.mean == pytest.approx(1.0, abs=0.05)
    assert found.interval and found.interval.low > 0.9
    alone = bootstrap_interval(first)
    assert alone and alone.high - alone.low > 2.0


def test_a_share_that_was_never_seen_is_not_known_to_be_zero():
    assert fraction(0, 20).interval == pytest.approx(Interval(0.0, 0.1611), abs=1e-4)  # Wilson's, from tables
    assert fraction(20, 20).interval == pytest.approx(Interval(0.8389, 1.0), abs=1e-4)
    assert fraction(10, 20).interval == pytest.approx(Interval(0.2993, 0.7007), abs=1e-4)


@pytest.mark.parametrize(
    "both, first, second, neither, expected",
    [
        (36, 12, 2, 0, (0.2, (0.0569, 0.3404))),  # Newcombe's first example
        (0, 0, 0, 20, (0.0, (-0.1611, 0.1611))),
        (0, 30, 0, 0, (1.0, (0.8395, 1.0))),
    ],
)
def test_the_difference_of_shares(both, first, second, neither, expected):
    sample = np.repeat([True, True, False, False], [both, first, second, neither])
    other = np.repeat([True, False, True, False], [both, first, second, neither])
    mean, interval = fraction_difference(sample, other)
    assert mean == pytest.approx(expected[0]) and interval == pytest.approx(expected[1], abs=1e-4)
    mean, interval = fraction_difference(other, sample)
    assert interval == pytest.approx((-expected[1][1], -expected[1][0]), abs=1e-4)
