"""Files of recordings: read whole, or refused in one line."""

import bz2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oni_jax.config import UserError
from oni_jax.viewing import ttyrec
from oni_jax.viewing.ttyrec import HEADER, KEY, OUTPUT, SCORE, Film, Frame, parse_ttyrec, read_ttyrec
from tests.viewing.games import record_game


def record(channel: int, content: bytes) -> bytes:
    return HEADER.pack(1, 2, len(content), channel) + content


GAME = record(OUTPUT, b"ab") + record(OUTPUT, b"c") + record(SCORE, bytes(4)) + record(KEY, b"k") + record(OUTPUT, b"d")


def test_a_frame_is_what_was_sent_up_to_a_key():
    assert parse_ttyrec(GAME, "x") == [Frame(b"abc", ord("k")), Frame(b"d", None)]


def test_screens_in_any_order(tmp_path, monkeypatch):
    monkeypatch.setattr(ttyrec, "SNAPSHOT_EVERY", 4)
    path = tmp_path / "game.ttyrec3.bz2"
    record_game(path, 30)
    frames = read_ttyrec(str(path))
    screens = [Film(frames).screen(index) for index in range(len(frames))]
    film = Film(frames)
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
        read_ttyrec(str(path))
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_other_files_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "game"
    with pytest.raises(UserError, match="can't be read .No such file"):
        read_ttyrec(str(path))
    with pytest.raises(UserError, match="can't be read .Is a directory"):
        read_ttyrec(str(tmp_path))
    path.write_bytes(GAME)
    with pytest.raises(UserError, match="is no recording of NLE's"):
        read_ttyrec(str(path))
    path.write_bytes(bz2.compress(GAME)[:-4])
    with pytest.raises(UserError, match="is cut off"):
        read_ttyrec(str(path))
    path.write_bytes(bz2.compress(GAME))
    monkeypatch.setattr(ttyrec, "MAX_BYTES", 10)
    with pytest.raises(UserError, match="holds more than"):
        read_ttyrec(str(path))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(GAME) - 1), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_read(place, value):
    data = bytearray(GAME)
    data[place] = value
    try:
        frames = parse_ttyrec(bytes(data), "x")
    except UserError:
        return
    assert sum(len(frame.output) for frame in frames) <= len(GAME)
