"""Playing in the terminal, as a user does."""

import signal

import pytest

from launch import play
from tests.show.runs import write_labelled_run
from tests.show.terminals import person

WIDE = {"columns": 120, "rows": 26}


def test_a_person_plays():
    with person("play", "--max_episode_steps", "3", **WIDE) as own:
        own.reads("step      0 of 3")
        own.reads("quits")
        own.type("W")
        own.reads("W is no action here")
        own.type("s")
        own.reads("step      1 of 3")
        own.reads("search (s)")
        own.type("s.")
        own.reads("end       step limit")
        own.type("\x18")
        assert own.leaves() == (0, "")
        assert own.is_restored() and b"in 3 steps, step limit" in own.shown


def test_a_terminal_of_eighty_columns_has_it_below():
    with person("play", "--policy", "random", "--steps_per_sec", "100", rows=36) as own:
        own.reads("of the message")
        own.type(" ")
        own.reads("paused")
        own.process.send_signal(signal.SIGINT)
        code, err = own.leaves()
        assert (code, err) == (130, "") and own.is_restored()


def test_a_policy_plays_with_the_labels_of_its_run(tmp_path):
    write_labelled_run(tmp_path / "run", {b"A message": 1})
    words = ["--train_dir", str(tmp_path), "--experiment", "run", "--policy", "greedy"]
    with person("play", *words, **WIDE) as own:
        own.reads("by run at 640 steps")
        own.reads("step      2 of 40")
        own.type("q")
        assert own.leaves()[0] == 0 and own.is_restored()


def test_a_policy_of_the_package_plays():
    with person("play", "babyai", "--policy", "sample", **WIDE) as own:
        own.reads("by babyai at 18,587,648 steps")
        own.type("q")
        assert own.leaves()[0] == 0 and own.is_restored()


def test_the_usual_terminal_shows_the_panel_on_a_key():
    with person("play", "--max_episode_steps", "2", rows=24) as own:
        own.reads("Tab: panel")
        own.type("W")
        assert b"of the message" not in own.reads("W is no action here")
        own.type("\t")
        own.reads("step      0 of 2")
        own.reads("Tab: game")
        own.type("\t")
        own.reads("HP:")
        own.type("s,")
        own.type("s")
        own.reads("step limit")
        own.type("\x18")
        assert own.leaves() == (0, "") and own.is_restored()


@pytest.mark.parametrize("columns, rows", [(40, 50), (80, 23)])
def test_a_small_terminal_is_one_line(columns, rows):
    with person("play", columns=columns, rows=rows) as own:
        code, err = own.leaves()
        assert code == 2 and err.count("\n") == 1 and own.is_restored()
        assert f"{columns} columns and {rows} rows" in err and "needs 80 columns and 24 rows" in err


@pytest.mark.parametrize(
    "words, message",
    [
        ((), "launch.play needs a terminal"),
        (("--policy", "greedy"), "--policy greedy: name the run"),
        (("--checkpoint", "all"), "--checkpoint all: must be"),
        (("--episode", "3000000000"), "--episode 3000000000: must be from 0 to"),
        (("--steps_per_sec", "0"), "--steps_per_sec 0.0: must be"),
    ],
)
def test_bad_input_is_one_line(capfd, words, message):
    assert play.main(list(words)) == 2
    err = capfd.readouterr().err
    assert message in err and err.count("\n") == 1
