"""Looking at a reward, as a user does."""

import csv
import io
import pathlib

import pytest

from launch import inspect_reward
from oni_jax.annotation.prompts import unescape
from oni_jax.evaluation.inspection import InspectedCaption, Inspection
from tests.evaluation.test_inspection import MET, settings_of, write_run

ALL_BYTES = bytes(range(1, 256))
LONG = b"A bear trap closes on your foot!  The kitten drops a gold piece. " + 150 * b"x"


def example(num_rows: int = 8, columns: tuple[str, ...] = ("better", "worse", "tie")) -> Inspection:
    labels = (12, 0, 345)[: len(columns)]
    rows = [InspectedCaption(b"message %d" % i, i, labels, 0.5 - i, 1.0 - i) for i in range(num_rows)]
    return Inspection(640, columns, [InspectedCaption(LONG, None, None, -1.23456e-5, 1.5), *rows], ["blstats"])


def run(folder: pathlib.Path, *words: str) -> int:
    return inspect_reward.main(["--train_dir", str(folder), "--experiment", "run", *words])


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
    write_run(tmp_path / "run", settings_of(tmp_path, "cosine-bow"))
    return tmp_path


def test_a_list_and_a_file(folder, capsys):
    assert run(folder, "--num_messages", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 captions, 2 with a reward above 0, at 640 steps"
    assert [line.split(maxsplit=3)[2:] for line in lines if " gold." in line] == [["2", "You find gold."]]
    assert lines[-1].endswith("run/messages.csv")
    with open(folder / "run" / "messages.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["message", "count", "raw_reward", "reward"]
    assert {unescape(row["message"]): int(row["count"]) for row in rows} == MET
    assert float(rows[0]["reward"]) > 0 and unescape(rows[0]["message"]) == b"You find gold."


def test_any_byte_survives_in_the_file(tmp_path):
    messages = [ALL_BYTES, b'"quoted", and, commas', b"\\x41", b"line\nbreak\r", b" ", b"", b"\xff"]
    rows = [InspectedCaption(message, 1, (1,), 0.5, 1.0) for message in messages]
    inspect_reward.write_csv(str(tmp_path / "a.csv"), Inspection(1, ("label",), rows, ()))
    with open(tmp_path / "a.csv", newline="", encoding="utf-8") as file:
        header, *read = csv.reader(file)
    assert header == ["message", "count", "label", "raw_reward", "reward"]
    assert [unescape(row[0]) for row in read] == messages
    assert {tuple(row[1:]) for row in read} == {("1", "1", "0.5", "1.0")}


def test_a_terminal_without_these_letters(folder, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    assert run(folder) == 0
    assert b"You find gold." in written.getvalue() and b"\\xff" in written.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_fit_the_terminal_and_hold_everything(width):
    lines = inspect_reward.report(example(), 3, width)
    assert max(map(len, lines)) <= width
    text = "".join("".join(lines).split())
    for row in example().captions[:4]:
        assert "".join(row.caption.decode().split()) in text or row.caption == b"message 2"
    assert "345" in text and "blstats" in text and "-1.235e-05" in text


def test_the_ends_are_listed_once():
    lines = inspect_reward.report(example(), 3, 80)
    told = [line.split()[-1] for line in lines if " message " in line]
    assert told == ["0", "1", "7", "6", "5"]
    assert [line for line in lines if line.endswith("rewarded")] == ["most rewarded", "least rewarded"]
    assert "least rewarded" not in inspect_reward.report(example(2), 3, 80)


def test_long_messages_keep_their_line_outside_a_terminal(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("oni_jax.evaluation.inspection.inspect_reward", lambda *_: example())
    assert run(folder) == 0
    assert LONG.decode() in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, told",
    [
        (("--experiment", "other"), "other/config.json"),
        (("--num_messages", "0"), "--num_messages 0"),
        (("--csv", "missing/a.csv"), "--csv missing/a.csv"),
        (("--dataset_dir", "missing"), "missing"),
    ],
)
def test_mistakes_are_told_in_one_line(folder, capsys, monkeypatch, words, told):
    monkeypatch.chdir(folder)
    assert run(folder, *words) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1 and told in captured.err


def test_help_tells_the_flags(capsys):
    assert inspect_reward.main(["--help"]) == 0
    assert "--dataset_dir" in capsys.readouterr().out
