"""The cards of the package's answers say what the files hold."""

import gzip
import json
import re
from collections import Counter

import pytest

from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.answers.agreement import agreement, cohens_kappa, read_readings
from oni_jax.answers.answerer import SUFFIX, shipped
from oni_jax.answers.form import read_answers
from oni_jax.envs.registry import languages

FILES = pytest.mark.parametrize("path", shipped(), ids=lambda path: path.name)


def cells(text: str) -> dict[str, list[str]]:
    """The tables' rows: first cell -> the others, of all rows of that name one after the other."""
    found: dict[str, list[str]] = {}
    for line in re.findall(r"^\| (.+) \|$", text, re.MULTILINE):
        first, *others = line.split(" | ")
        found.setdefault(first, []).extend(others)
    return found


@FILES
def test_card_s_counts_and_agreement_are_those_of_the_files(path):
    file, name = read_answers(str(path), languages()), path.name.removesuffix(SUFFIX)
    kind, found = QUERIES[file.header.kind], cells(path.with_name(f"{name}.md").read_text())
    assert found["items"] == [f"{len(file.rows):,}"] and found["licence"] == [file.header.licence]
    assert (found["environment"], found["kind of query"]) == ([file.header.environment], [file.header.kind])
    readings = read_readings(str(path.with_name(f"{name}.readings.gz")))
    assert readings.goals == file.header.goals and readings.kind == file.header.kind
    for goal in file.header.goals:
        counts = Counter(kind.describe(answer) for answer in file.under(goal).values())
        agreed = agreement(readings, goal)
        value = "not defined" if agreed.value is None else f"{agreed.value:.2f}"
        expected = [", ".join(f"{counts[word]:,} {word}" for word in kind.names)] if kind.choices else []  # type: ignore
        assert found[goal or "goals"] == [*expected, value, str(agreed.num_items), str(agreed.num_readers)]


@FILES
def test_a_fifth_of_the_items_was_read_again(path):
    name, file = path.name.removesuffix(SUFFIX), read_answers(str(path), languages())
    readings = read_readings(str(path.with_name(f"{name}.readings.gz")))
    if name == "nethack_classification":  # an earlier collection: 150 items, six readers; and 4,507 later ones
        later = read_readings(str(path.with_name(f"{name}_later.readings.gz")))
        assert len(readings.rows) == 150 and len(later.rows) >= 0.2 * 4507
        assert all(file.rows[item].answers[0] == answers[0][0] for item, answers in later.rows.items())
    elif name != "crafter_suggestions":  # 15,148 of whose states are later ones
        assert len(readings.rows) >= 0.2 * len(file.rows)
    else:
        assert len(readings.rows) >= 0.2 * 15148
    in_file = [item for item in readings.rows if item in file.rows]
    if len(in_file) == len(readings.rows) and name != "nethack_classification":
        assert all([*file.rows[item].answers] == readings.rows[item][0] for item in in_file)


def test_agreement_of_further_readings_is_the_card_s():
    path = next(path for path in shipped() if path.name.startswith("nethack_classification"))
    later = agreement(read_readings(str(path.with_name("nethack_classification_later.readings.gz"))), "defaultgoal")
    card = path.with_name("nethack_classification.md").read_text()
    assert f"{later.num_items} were read by two" in card and f"kappa {later.value:.2f} under" in card


def test_agreement_under_a_goal_is_of_the_items_that_all_readers_read_under_it(tmp_path):
    header = {"format": "oni_jax readings 1", "kind": "classification", "goals": ["defaultgoal", "gold"]}
    rows = [[["a"], [[1, 1], [1, 0]]], [["b"], [[0, 0], [0, 0]]], [["c"], [[1, 1], [1, None]]]]
    path = tmp_path / "readings.gz"
    path.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in [header, *rows]).encode()))
    readings = read_readings(str(path))
    assert agreement(readings, "defaultgoal") == (1.0, 3, 2) and agreement(readings, "gold") == (0.0, 2, 2)


def test_kappa_of_readers():
    assert cohens_kappa([(1, 1), (0, 0), (1, 0), (0, 1)]) == 0.0
    assert cohens_kappa([(1, 1), (0, 0)]) == 1.0
