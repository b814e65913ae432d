"""The field's words, and none that were ours alone. `python -m tests.test_words PATH ...` lists findings."""

import ast
import functools
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterator

import pytest

from tests.support.processes import ROOT

FOLDERS = ("oni_jax", "launch", "benchmarks")
OWN = (
    r"\bowns?\b|\bown_|_own\b|_own_",
    "the, its, separate, new; local; or a noun that says what it is",
    # a user's; a key of checkpoints of environments on a device; a key of measurements
    r"[Yy]our own|\.own\b|own: Any|\"own_code\"",
)
# A word of ours, what is said instead, and where it stays: a use by the field or the language.
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
    OWN,
)
RELATIVES = {"what", "who", "whom", "where", "whether", "which", "how", "that", "when"}
OPENINGS = RELATIVES | {"of"}  # no docstring opens so
PREPOSITIONS = {"of", "for", "by", "with", "in", "on", "from", "without", "beside", "besides", "to", "between"}
PREPOSITIONS |= {"within", "under", "beyond"}
# A test's name begins with its subject.
NAMES = RELATIVES | PREPOSITIONS | {"it", "they", "nothing", "there", "these", "this", "own", "as", "after"}


def lines_with_words(path: pathlib.Path, words=WORDS) -> Iterator[str]:
    """A line for each word of the left column."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for word, instead, stays in words:
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


def odd_comments(path: pathlib.Path) -> Iterator[str]:
    """Comments that open with a preposition or a relative word; the lines after a comment's first continue it."""
    end = None
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            (row, column), text = token.start, token.string.lstrip("# ")
            is_first = bool(token.line[:column].strip()) or end != (row - 1, column)
            if is_first and re.split(r"\W", text, maxsplit=1)[0].lower() in RELATIVES | PREPOSITIONS:
                yield f"{path.relative_to(ROOT)}:{row}: comment opens with {text!r}"
            end = row, column


def odd_names(path: pathlib.Path) -> Iterator[str]:
    """Names of tests that do not begin with their subject."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.match(r"test_[a-z]", node.name):
            if node.name.split("_")[1] in NAMES:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} does not begin with its subject"


LOOKS = (odd_openings, odd_comments, odd_names)


def findings(folders: tuple[str, ...]) -> list[str]:
    paths = [
        path
        for folder in folders
        for path in ([ROOT / folder] if folder.endswith(".py") else (ROOT / folder).rglob("*.py"))
    ]
    return [found for path in sorted(paths) for look in (lines_with_words, *LOOKS) for found in look(path)]


def test_the_field_s_words():
    assert findings(FOLDERS) == []


def test_the_words_of_tests():
    paths = sorted({*(ROOT / "tests").rglob("*.py")} - {pathlib.Path(__file__)})
    looks = (functools.partial(lines_with_words, words=(OWN,)), *LOOKS)
    assert [found for path in paths for look in looks for found in look(path)] == []


@pytest.mark.parametrize(
    "text, number",
    [
        ("x = 1  # of a run\n", 1),
        ("x = 1  # steps of a run\n", 0),
        ("# Without a server\n# nobody answers.\nx = 1\n", 1),
        ("# A server answers\n# with a label.\nx = 1\n", 0),
        ("x = 1  # [T, B] uint8\n# ONI: another sign\n", 0),
        ("x = '# of a run'\n", 0),
        ("def test_what_is_saved_is_read(): ...\n", 1),
        ("async def test_it_waits(): ...\n", 1),
        ("def test_saved_state_is_read(): ...\ndef what(): ...\n", 0),
        ("own = 1\n", 1),
        ("is_own = 1\n", 1),
        ("downtown = 'a plugin of your own'\n", 0),
    ],
)
def test_kinds_of_findings(text, number, monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(text)
    assert len(findings((str(path),))) == number


if __name__ == "__main__":
    print(*findings(tuple(sys.argv[1:]) or FOLDERS), sep="\n")
