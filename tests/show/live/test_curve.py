"""Curves of the live view: their memory, and how they are drawn."""

import numpy as np

from oni_jax.show.live.curve import MAX_POINTS, Curve, chart, sparkline


def curve_of(values, steps=None) -> Curve:
    curve = Curve()
    for step, value in zip(range(len(values)) if steps is None else steps, values):
        curve.add(step, value)
    return curve


def test_a_curve_in_a_line():
    assert sparkline(np.array([0.0, 7.0]), ascii_only=False) == "▁█"
    assert sparkline(np.array([0.0, 3.4, 7.0]), ascii_only=True) == ".=@"
    assert sparkline(np.array([5.0] * 4), ascii_only=False) == "█" * 4
    assert sparkline(np.zeros(4), ascii_only=False) == "▁" * 4


def test_bars_of_positive_values_stand_on_zero():
    assert sparkline(np.array([8.0, 7.0, 4.0]), ascii_only=False) == "█▇▅"
    assert sparkline(np.array([-1.0, 0.0, 1.0]), ascii_only=False) == "▁▅█"
    rows = chart(curve_of([90.0, 100.0]), "return 100", 44, 5, False)[1:-1]
    assert [row.split()[0] for row in (rows[0], rows[-1])] == ["100", "0"] and rows[-1].count("█") == 33


def test_newest_value_is_within_the_chart():
    values = [*[1.0] * 99, 7.0]
    top, *_ = chart(curve_of(values), "return 7", 44, 8, False)[1:]
    assert top.split()[0] == "7" and top.endswith("█")
    assert curve_of([1.0] * 3000 + [9.0]).extremes() == (1.0, 9.0)


def test_bins_are_of_equal_numbers_of_steps():
    slow_then_fast = curve_of([0.0, 0.0, 0.0, 0.0, 8.0, 2.0], steps=[0, 1, 2, 3, 90, 100])
    assert slow_then_fast.binned(2).tolist() == [0, 5]
    assert slow_then_fast.binned(5).tolist() == [0, 0, 0, 0, 5]  # empty ones have their left one's
    assert curve_of([3.0]).binned(10).tolist() == [3]


def test_a_week_s_curve_is_kept_whole():
    number = 120_000
    values = np.sin(np.linspace(0, np.pi, number))
    curve = curve_of(values, steps=range(0, 10 * number, 10))
    assert MAX_POINTS / 3 < len(curve) <= MAX_POINTS
    expected = [part.mean() for part in np.array_split(values, 20)]
    assert np.allclose(curve.binned(20), expected, atol=0.01)
    assert curve.span()[1] == 10 * (number - 1) and max(abs(x) for x in curve.extremes()) <= 1


def test_a_chart_fits_and_names_its_ends():
    for width, height in ((44, 5), (68, 10)):
        title, *rows, axis = chart(curve_of(range(30), steps=range(0, 30_000, 1000)), "return 29", width, height, False)
        assert (title, len(rows)) == ("return 29", height - 2)
        assert max(map(len, rows + [axis])) <= width
        assert rows[0].split()[0] == "29" and rows[-1].split()[0] == "0" and "29,000 steps" in axis
        heights = ["".join(column).count("█") for column in zip(*(row[10:].ljust(width) for row in rows))]
        assert heights[: width - 11] == sorted(heights[: width - 11])
    flat = chart(curve_of([2.0, 2.0]), "flat", 44, 5, True)
    assert all(line.isascii() for line in flat) and (flat[1].split()[0], flat[3].split()[0]) == ("2", "0")
