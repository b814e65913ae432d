"""Playing in the terminal, as a user does."""

import signal

import pytest

from launch import play
from oni_jax.show.config import PlayConfig
from tests.show.runs import write_labelled_run
from tests.show.terminals import person

WIDE = {"columns": 120, "rows": 26}


def test_a_person_plays():
    with person("play", "--max_episode_steps", "3", **WIDE) as player:
        player.reads("step      0 of 3")
        player.reads("quits")
        player.type("W")
        player.reads("W is no action here")
        player.type("s")
        player.reads("step      1 of 3")
        player.reads("search (s)")
        player.type("s.")
        player.reads("end       step limit")
        player.type("\x18")
        assert player.leaves() == (0, "")
        assert player.is_restored() and b"in 3 steps, step limit" in player.shown


def test_a_terminal_of_eighty_columns_has_it_below():
    with person("play", "--policy", "random", "--steps_per_sec", "100", rows=36) as player:
        player.reads("of the message")
        player.type(" ")
        player.reads("paused")
        player.process.send_signal(signal.SIGINT)
        code, err = player.leaves()
        assert (code, err) == (130, "") and player.is_restored()


def test_a_policy_plays_with_the_labels_of_its_run(tmp_path):
    write_labelled_run(tmp_path / "run", {b"A message": 1})
    words = ["--train_dir", str(tmp_path), "--experiment", "run", "--policy", "greedy"]
    with person("play", *words, **WIDE) as player:
        player.reads("by run at 640 steps")
        player.reads("step      2 of 40")
        player.type("q")
        assert player.leaves()[0] == 0 and player.is_restored()


def test_a_policy_of_the_package_plays():
    with person("play", "babyai", "--policy", "sample", **WIDE) as player:
        player.reads("by babyai at 18,587,648 steps")
        player.type("q")
        assert player.leaves()[0] == 0 and player.is_restored()


def test_the_usual_terminal_shows_the_panel_on_a_key():
    with person("play", "--max_episode_steps", "2", rows=24) as player:
        player.reads("Tab: panel")
        player.type("W")
        assert b"of the message" not in player.reads("W is no action here")
        player.type("\t")
        player.reads("step      0 of 2")
        player.reads("Tab: game")
        player.type("\t")
        player.reads("HP:")
        player.type("s,")
        player.type("s")
        player.reads("step limit")
        player.type("\x18")
        assert player.leaves() == (0, "") and player.is_restored()


@pytest.mark.parametrize("columns, rows", [(40, 50), (80, 23)])
def test_a_small_terminal_is_one_line(columns, rows):
    with person("play", columns=columns, rows=rows) as player:
        code, err = player.leaves()
        assert code == 2 and err.count("\n") == 1 and player.is_restored()
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


def test_the_command_after_playing_names_the_file_alone():
    of_file = play.evaluation_of(PlayConfig(file="babyai", policy="sample"))
    assert "launch.evaluate babyai" in of_file and "--experiment" not in of_file
    assert "--experiment mine" in play.evaluation_of(PlayConfig(experiment="mine", policy="sample"))
