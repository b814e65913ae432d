"""The field's words, and none that were ours alone. `python -m tests.test_words PATH ...` lists what it finds."""

import ast
import pathlib
import re
import sys
from collections.abc import Iterator

from tests.support.processes import ROOT

FOLDERS = ("oni_jax", "launch", "benchmarks")
# A word of ours, what is said instead, and where it stays: the field's or the language's own use of it.
WORDS = (
    (
        r"\b(?:a|an|the|its|of|each|own|their|\w+'s) shares?\b|shares? of\b|_shares?\b",
        "fraction, or shard",
        r"\"_share\"",
    ),  # names of old metrics
    (
        r"\bplace[sd]?\b",
        "index, slot, row, position; put on the device",
        # English; a key of checkpoints; an action of Crafter
        r"(?:in|takes?|took|taking) (?:its |their |the )?place|\"place\"|\"place (?:\{|[a-z])",
    ),
    (r"\banew\b", "again", ""),
    (r"\b(?:told|tells?|telling)\b", "report, say, log, broadcast, all-gather", r"\.tell\(\)"),  # a file's
    (r"\bwish(?:es|ed)?\b", "request", ""),
    (
        r"\bunits?\b",
        "group of environments",
        # units of measure, of a network, and of checkpoints' keys
        r"unit_\{|\.unit\b|unit: str|dense unit|units with|time_unit|TIME_UNIT|unit, factor|unit} of|a unit|\| unit",
    ),
    (r"\b(?:owed|lot|whoever)\b", "pending; all; who", ""),
    (r"(?:that|which) are (?:none|no numbers?)\b", "NaN or inf, not a number", ""),
    (r"\bfrom_raw\b|\bcount_discount\b|\bleads\b", "normalise, episodic_count_bonus, is_primary", ""),
)
OPENINGS = {"what", "who", "whom", "where", "whether", "of", "which", "how", "that", "when"}


def lines_with_words(path: pathlib.Path) -> Iterator[str]:
    """A line for each word of the left column."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for word, instead, stays in WORDS:
            for found in re.finditer(word, line):
                if not (
                    stays
                    and any(allowed.start() <= found.start() <= allowed.end() for allowed in re.finditer(stays, line))
                ):
                    yield f"{path.relative_to(ROOT)}:{number}: {found[0]!r} ({instead}): {line.strip()}"


def odd_openings(path: pathlib.Path) -> Iterator[str]:
    """Docstrings that open with neither a verb nor a noun phrase."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if text and re.split(r"\W", text, maxsplit=1)[0].lower() in OPENINGS:
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: opens with {text.splitlines()[0]!r}"


def findings(folders: tuple[str, ...]) -> list[str]:
    paths = [
        path
        for folder in folders
        for path in ([ROOT / folder] if folder.endswith(".py") else (ROOT / folder).rglob("*.py"))
    ]
    return [found for path in sorted(paths) for look in (lines_with_words, odd_openings) for found in look(path)]


def test_the_field_s_words():
    assert findings(FOLDERS) == []


if __name__ == "__main__":
    print(*findings(tuple(sys.argv[1:]) or FOLDERS), sep="\n")
