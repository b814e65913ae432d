"""Curves of a running training over its environment steps, drawn with characters."""

import numpy as np

MAX_POINTS = 1024  # kept; of more, neighbours are averaged
BARS, ASCII_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"


class Curve:
    """Points of a metric, from the start on, in bounded memory."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float, int]] = []  # steps, mean, number of rows in it
        self._rows_each = 1
        self._newest = 0.0

    def __len__(self) -> int:
        return len(self._points)

    def add(self, env_steps: float, value: float) -> None:
        """Adds a row's value, which is finite; steps do not decrease."""
        self._newest = value
        _, mean, number = self._points[-1] if self._points else (0.0, 0.0, self._rows_each)
        if number < self._rows_each:
            self._points[-1] = env_steps, (mean * number + value) / (number + 1), number + 1
        else:
            self._points.append((env_steps, value, 1))
        if len(self._points) > MAX_POINTS:
            pairs = zip(self._points[::2], self._points[1::2])
            merged = [(b[0], (a[1] * a[2] + b[1] * b[2]) / (a[2] + b[2]), a[2] + b[2]) for a, b in pairs]
            self._points = merged + self._points[2 * len(merged) :]
            self._rows_each *= 2

    def binned(self, width: int) -> np.ndarray:
        """Returns the means over equal ranges of steps, [at most width] float64; an empty range has its left one's."""
        steps, values, _ = np.array(self._points, np.float64).T
        num = max(1, min(width, len(values)))
        edges = np.linspace(steps[0], steps[-1], num + 1)[1:-1]
        index = np.searchsorted(edges, steps)
        counts = np.bincount(index, minlength=num)
        sums = np.bincount(index, values, minlength=num)
        filled = np.maximum.accumulate(np.where(counts > 0, np.arange(num), 0))
        return (sums / np.maximum(1, counts))[filled]

    def drawn(self, width: int) -> np.ndarray:
        """Returns `binned`, but the newest value at the end: a page shows it in figures beside the curve."""
        points = self.binned(width)
        points[-1] = self._newest
        return points

    def extremes(self) -> tuple[float, float]:
        """Returns the smallest and the largest value."""
        values = [self._newest, *(value for _, value, _ in self._points)]
        return min(values), max(values)

    def span(self) -> tuple[float, float]:
        """Returns the first and the last number of steps."""
        return self._points[0][0], self._points[-1][0]


def sparkline(points: np.ndarray, ascii_only: bool) -> str:
    """Draws points in a line, a character each."""
    return _rows(points, 1, ascii_only)[0]


def chart(curve: Curve, title: str, width: int, height: int, ascii_only: bool) -> list[str]:
    """Draws a curve on at most `width` columns and `height` rows: a title, bars, and the range of steps."""
    size = max(1, width - 11)  # width left by the numbers
    points = curve.drawn(size)
    points = points[np.arange(size) * len(points) // size]
    low, high = _ends(points)
    rows = _rows(points, max(1, height - 2), ascii_only)
    beside = {len(rows) - 1: f"{low:,.4g}"} | ({0: f"{high:,.4g}"} if high > low else {})
    first, last = (f"{steps:,.0f}" for steps in curve.span())
    axis = f"{first}{last + ' steps':>{max(1, size - len(first))}}"
    return [title, *(f"{beside.get(i, ''):>9} {row}" for i, row in enumerate(rows)), f"{'':10}{axis}"]


def _ends(points: np.ndarray) -> tuple[float, float]:
    """Returns the values at the lower and the upper end of bars: those of positive values stand on zero."""
    return min(0.0, points.min()), points.max()


def _rows(points: np.ndarray, height: int, ascii_only: bool) -> list[str]:
    """Draws bars of points from 1 to `8 * height` eighths of a character, from the top row on."""
    levels = ASCII_BARS if ascii_only else BARS
    low, high = _ends(points)
    eighths = 1 + np.rint((points - low) / (high - low or 1.0) * (8 * height - 1)).astype(int)
    return ["".join(levels[x] for x in np.clip(eighths - 8 * row, 0, 8)) for row in reversed(range(height))]
