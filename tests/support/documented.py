"""The table of metrics: what it lacks, and how the docs list it."""

import itertools
import re
from collections.abc import Iterable

from oni_jax.metrics.names import METRICS

_PATTERN = re.compile("|".join(re.sub(r"<\w+>", "[^/]+", name) for name in METRICS))


def undocumented(names: Iterable[str]) -> list[str]:
    """Returns the names that the table lacks."""
    return sorted(name for name in names if not _PATTERN.fullmatch(name))


def markdown_list() -> list[str]:
    """Returns the lines of the list in the docs. Names of one meaning that follow each other share a line."""
    lines = []
    for metric, group in itertools.groupby(METRICS, key=lambda name: METRICS[name]):
        first, *others = group
        shown = [f"`{first}`", *(f"`{name.rpartition('/')[2]}`" for name in others)]
        names = ", ".join(shown) if len(shown) < 5 else f"{shown[0]} to {shown[-1]}"
        unit = (
            "" if re.search("_fraction$|_per_sec|_bytes$|_secs|secs$", first) or "text" in metric.unit else metric.unit
        )
        lines.append(f"- {names}{f' ({unit})' if unit else ''}: {metric.meaning}")
    return lines
