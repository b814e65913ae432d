"""Watching a recording, as a user does."""

import signal

import pytest

from launch import watch
from tests.viewing.games import record_game
from tests.viewing.terminals import person


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    path = tmp_path_factory.mktemp("films") / "game.ttyrec3.bz2"
    record_game(path, 40)
    return str(path)


def test_a_recording_is_watched(game):
    with person("watch", game, "--screens_per_sec", "0.5") as own:
        own.reads("screen 1 of ")
        own.type(".")
        own.reads("screen 2 of ")
        own.reads("paused")
        own.type("$")
        own.reads(", end")
        own.type("q")
        assert own.leaves() == (0, "")
        assert own.is_restored() and own.shown.endswith(b"\x1b[?25h\x1b[?1049l")


def test_an_interruption_leaves_the_terminal_as_it_was(game):
    with person("watch", game) as own:
        own.reads("screen 1 of ")
        own.process.send_signal(signal.SIGINT)
        assert own.leaves() == (130, "")
        assert own.is_restored() and b"\x1b[?1049l" in own.shown


@pytest.mark.parametrize("size, message", [((40, 24), "40 columns and 24 rows"), ((80, 20), "80 columns and 20 rows")])
def test_a_small_terminal_is_one_line(game, size, message):
    with person("watch", game, columns=size[0], rows=size[1]) as own:
        code, err = own.leaves()
        assert code == 2 and err.count("\n") == 1 and message in err and own.is_restored()


def test_no_terminal_is_one_line(game, capfd, monkeypatch):
    assert watch.main([game]) == 2
    assert "launch.watch needs a terminal" in capfd.readouterr().err


def test_no_file_and_a_wrong_one(tmp_path, capfd):
    assert watch.main([]) == 2
    assert "python -m launch.watch FILE" in capfd.readouterr().err
    path = tmp_path / "a"
    path.write_bytes(b"no recording")
    assert watch.main([str(path)]) == 2
    err = capfd.readouterr().err
    assert "is no recording of NLE's" in err and err.count("\n") == 1
