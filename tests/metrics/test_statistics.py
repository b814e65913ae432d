"""Rates and means over the recent past; histograms of rewards; texts that steer nothing."""

import numpy as np
import pytest

from oni_jax.metrics.rows import NUM_BINS, histogram, numbers, plain_row
from oni_jax.metrics.statistics import RateMeters, RollingStats
from oni_jax.settings.fields import printable


def rates_of(*points: tuple[float, float]) -> list[float]:
    """Returns the rates of a count at these (seconds, total), over a window of 10 s."""
    meters = RateMeters(window_secs=10)
    return [meters.update({"a": total}, secs)["a_per_sec"] for secs, total in points]


def test_rate_is_that_of_the_window():
    still = [(float(secs), 100.0) for secs in range(2, 13)]
    first, second, *rates, last = rates_of((0, 0), (1, 100), *still, (13, 400))
    assert (first, second) == (0, 100)
    assert rates[0] == 50 and rates[-2:] == [0, 0]
    assert last == 30


def test_rate_when_calls_are_rarer_than_the_window():
    assert rates_of((0, 0), (30, 300), (60, 900)) == [0, 10, 20]


def test_means_over_the_last_episodes():
    stats = RollingStats(("return", "length", "gold"), window=2)
    assert stats.row() == {}
    stats.add(np.array([[1, 10, 5]], np.float32))
    buffer = np.array([[2, 20, 6], [4, 40, 8]], np.float32)
    stats.add(buffer)
    buffer[:] = 0  # the caller's memory
    row = stats.row()
    assert row["mean_return"] == row["episode/return"] == 3
    assert row["mean_length"] == 30 and row["episode/gold"] == 7
    assert "mean_gold" not in row


def test_achievements_have_a_score():
    stats = RollingStats(("return", "eats", "sleeps"), window=4, achievements=("eats", "sleeps"))
    stats.add(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]], np.float32))
    assert stats.row()["episode/score"] == pytest.approx(51**0.5 - 1)  # rates of 50 and 0 percent
    assert "episode/score" not in RollingStats(("return",), window=4).row()


def test_rates_of_several_counts():
    meters = RateMeters()
    assert meters.update({"a": 5}, 0.0) == {"a_per_sec": 0}
    assert meters.update({"a": 7, "b": 3}, 1.0) == {"a_per_sec": 2, "b_per_sec": 0}
    assert meters.update({"a": 7, "b": 4}, 2.0) == {"a_per_sec": 1, "b_per_sec": 1}


def test_a_histogram_leaves_out_zeros_and_what_is_not_finite():
    found = histogram(np.array([[0.0, 1.0, np.nan], [3.0, np.inf, -1.0]], np.float32))
    assert found and found.counts.sum() == 3 and len(found.counts) == NUM_BINS
    assert (found.edges[0], found.edges[-1], found.sum, found.sum_squares) == (-1, 3, 3, 11)
    assert histogram([0.0, np.nan]) is None


@pytest.mark.parametrize("values", [[2.0], [1e30, 1e-30], [1.0, 1.0 + 2**-23]])
def test_a_histogram_of_few_or_extreme_values(values):
    found = histogram(np.asarray(values, np.float32))
    assert found and found.counts.sum() == len(values) and np.isfinite(found.edges).all()


def test_places_take_from_a_row_what_they_can_hold():
    row = {"a": np.float32(0.5), "word": "up", "none": None, "rewards": histogram([1.0]), "answers": ()}
    assert plain_row(row) == {"a": 0.5, "word": "up", "none": None}
    assert numbers(row) == {"a": 0.5}


@pytest.mark.parametrize(
    "text, shown",
    [
        (b"You kill it!", "You kill it!"),
        (b"caf\xe9", "café"),
        (b"\x1b[2J\x9b2J\r\n\x07", "\\x1b[2J\\x9b2J\\r\\n\\x07"),
        ("a\u202eb\u200b\ud800\U000e0041", "a\\u202eb\\u200b\\ud800\\U000e0041"),
        ("日本", "日本"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert printable(text) == shown


def test_lines_may_be_kept():
    assert printable("a\nb\tc", keep="\n") == "a\nb\\tc"
