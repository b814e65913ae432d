"""The table of metrics: what it lacks, and how the docs show it."""

import re
from collections.abc import Iterable

from oni_jax.metrics.names import METRICS

_PATTERN = re.compile("|".join(re.sub(r"<\w+>", "[^/]+", name) for name in METRICS))


def undocumented(names: Iterable[str]) -> list[str]:
    """Returns the names that the table lacks."""
    return sorted(name for name in names if not _PATTERN.fullmatch(name))


def markdown_table() -> list[str]:
    """Returns the lines of the table in the docs."""
    lines = [f"| {name} | {metric.unit} | {metric.meaning} |" for name, metric in METRICS.items()]
    return ["| name | unit | what |", "|---|---|---|", *lines]
