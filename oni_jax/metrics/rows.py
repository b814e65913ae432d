"""Rows of metrics: names mapped to numbers, words, histograms and the LLM's answers."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

Row = Mapping[str, Any]  # numbers are Python, NumPy or JAX scalars; `answers` is a sequence of Answer, the newest last

NUM_BINS = 30


class Histogram(NamedTuple):
    """Counts of values in NUM_BINS bins of equal width."""

    edges: np.ndarray  # [NUM_BINS + 1] float64
    counts: np.ndarray  # [NUM_BINS] int64
    sum: float
    sum_squares: float


def histogram(values: Any) -> Histogram | None:
    """Returns the histogram of an array's finite values other than 0; None when it has none."""
    flat = np.asarray(values, np.float64).ravel()
    flat = flat[np.isfinite(flat) & (flat != 0)]
    if not flat.size:
        return None
    counts, edges = np.histogram(flat, NUM_BINS)
    return Histogram(edges, counts, float(flat.sum()), float((flat**2).sum()))


def plain_row(row: Row) -> dict[str, Any]:
    """Returns the row's numbers and words as JSON can hold them: None for NaN and inf."""
    plain = {name: x.item() if hasattr(x, "item") else x for name, x in row.items() if not isinstance(x, tuple)}
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in plain.items()}


def numbers(row: Row) -> dict[str, float]:
    return {name: float(value) for name, value in row.items() if not isinstance(value, str | tuple | None)}


def finite(row: Row) -> dict[str, float]:
    return {name: value for name, value in numbers(row).items() if math.isfinite(value)}


def histograms(row: Row) -> Iterator[tuple[str, Histogram]]:
    return ((name, value) for name, value in row.items() if isinstance(value, Histogram))
