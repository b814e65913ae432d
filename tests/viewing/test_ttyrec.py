"""Files of recordings: read whole, or refused in one line."""

import bz2

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oni_jax.config import UserError
from oni_jax.viewing import ttyrec
from oni_jax.viewing.screen import Screen, engine_screen
from oni_jax.viewing.ttyrec import HEADER, KEY, OUTPUT, SCORE, Film
from tests.viewing.games import record, record_game, write_ttyrec

GAME = record(OUTPUT, b"ab") + record(OUTPUT, b"c") + record(SCORE, bytes(4)) + record(KEY, b"k") + record(OUTPUT, b"d")


@pytest.mark.parametrize("seed", [0, 1])
def test_screens_are_those_of_the_engine(tmp_path, seed):
    path = tmp_path / "game.ttyrec3.bz2"
    seen = record_game(path, 400, seed)
    film = Film(str(path))
    assert len(film) >= len(seen) - 1
    colors = set()
    for index, (chars, own_colors, cursor) in enumerate(seen[:-1]):
        expected, found = engine_screen(chars, own_colors, cursor), film.screen(index)
        np.testing.assert_array_equal(found.chars, expected.chars)
        written = expected.chars != ord(" ")
        np.testing.assert_array_equal(found.colors[written], expected.colors[written])
        assert found.cursor == expected.cursor
        colors |= set(np.unique(expected.colors[written]).tolist())
    assert len(colors) > 3  # a game shows something


def test_a_screen_is_what_was_sent_up_to_a_key_or_the_end(tmp_path):
    (tmp_path / "game").write_bytes(bz2.compress(GAME))
    film = Film(str(tmp_path / "game"))
    assert [film.key(index) for index in range(len(film))] == [ord("k"), None]
    assert [film.screen(index).chars[0, :5].tobytes() for index in (0, 1)] == [b"abc  ", b"abcd "]


def test_screens_in_any_order(tmp_path, monkeypatch):
    path = tmp_path / "game.ttyrec3.bz2"
    record_game(path, 30)
    film = Film(str(path))
    screens = [film.screen(index) for index in range(len(film))]
    monkeypatch.setattr(ttyrec, "NUM_AT_ONCE", 4)
    film = Film(str(path))
    for index in [29, 3, 4, 0, 8, 7, 12, 30, 29, 1, 2]:
        found = film.screen(index)
        np.testing.assert_array_equal(found.chars, screens[index].chars)
        np.testing.assert_array_equal(found.colors, screens[index].colors)
        assert found.cursor == screens[index].cursor


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "is an empty recording"),
        (b"hello, this is text", "damaged"),
        (GAME[:-1], "damaged"),
        (GAME + b"\0" * 5, "damaged"),
        (HEADER.pack(1, 2, -1, OUTPUT), "damaged"),
        (HEADER.pack(1, 2, 1 << 30, OUTPUT) + b"x", "damaged"),
        (record(3, b"x"), "damaged"),
        (record(KEY, b"xy"), "damaged"),
    ],
)
def test_damaged_files_are_refused(tmp_path, data, message):
    path = tmp_path / "game.ttyrec3.bz2"
    path.write_bytes(bz2.compress(data))
    with pytest.raises(UserError, match=message) as error:
        Film(str(path))
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_other_files_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "game"
    with pytest.raises(UserError, match="can't be read .No such file"):
        Film(str(path))
    with pytest.raises(UserError, match="can't be read .Is a directory"):
        Film(str(tmp_path))
    path.write_bytes(GAME)
    with pytest.raises(UserError, match="is no recording of NLE's"):
        Film(str(path))
    path.write_bytes(bz2.compress(GAME)[:-4])
    with pytest.raises(UserError, match="is cut off"):
        Film(str(path))
    path.write_bytes(bz2.compress(GAME))
    monkeypatch.setattr(ttyrec, "MAX_BYTES", 10)
    with pytest.raises(UserError, match="holds more than"):
        Film(str(path))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(GAME) - 1), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_read(tmp_path, place, value):
    data = bytearray(GAME)
    data[place] = value
    (tmp_path / "game").write_bytes(bz2.compress(data))
    try:
        film = Film(str(tmp_path / "game"))
    except UserError:
        return
    for index in range(len(film)):
        check_printable(film.screen(index))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([b"\x1b", b"[", b";", b"7", b"H", b"J", b"m", b"\n", b"\b", b"\t", b"A", b"\xff", b"x"]))
)
def test_whatever_comes_there_is_a_screen(tmp_path, pieces):
    check_printable(write_ttyrec(tmp_path / "game", (b"".join(pieces), 0)).screen(0))


def check_printable(screen: Screen) -> None:
    assert ((screen.chars >= 32) & (screen.chars < 127)).all() and (screen.colors < 32).all()
    assert screen.cursor is not None and screen.cursor[0] < 24 and screen.cursor[1] < 80
