"""What a game sends its terminal, as screens: compared with what the engine itself says was shown."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oni_jax.viewing.screen import BROWN, GRAY, INVERSE, YELLOW, engine_screen
from oni_jax.viewing.terminal import Terminal
from oni_jax.viewing.ttyrec import Film, read_ttyrec
from tests.viewing.games import record_game


@pytest.mark.parametrize("seed", [0, 1])
def test_screens_are_those_of_the_engine(tmp_path, seed):
    path = tmp_path / "game.ttyrec3.bz2"
    seen = record_game(path, 400, seed)
    film = Film(read_ttyrec(str(path)))
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


def shown(output: bytes, rows: int = 4, columns: int = 10) -> tuple[list[str], np.ndarray, tuple[int, int] | None]:
    terminal = Terminal(rows, columns)
    terminal.feed(output)
    screen = terminal.screen()
    return [row.tobytes().decode() for row in screen.chars], screen.colors, screen.cursor


def test_moves_erasures_and_colours():
    rows, colors, cursor = shown(b"\x1b[2;3Hab\x1b[1;33mc\x1b[0;7md\x1b[m\r\nx\b\x1b[Cy")
    assert rows == [" " * 10, "  abcd    ", "xy        ", " " * 10]
    assert colors[1, 2:7].tolist() == [GRAY, GRAY, YELLOW, GRAY + INVERSE, GRAY]
    assert cursor == (2, 2)
    rows, _, _ = shown(b"abcdefghijk\x1b[2;1Hzz\x1b[1;3H\x1b[K\x1b[33m\x1b[4;1H1\x1b[3;1H\x1b[1J")
    assert rows == [" " * 10, " " * 10, " " * 10, "1         "]
    rows, colors, _ = shown(b"\x1b[33ma\x1b[39mb\x1b[93mc\x1b[2J")
    assert rows == [" " * 10] * 4 and BROWN not in colors


def test_the_last_column_and_the_last_row():
    rows, _, cursor = shown(b"0123456789")
    assert rows[0] == "0123456789" and cursor == (0, 9)
    rows, _, cursor = shown(b"0123456789a\x1b[4;10Hb\r\nc")
    assert rows == ["a" + " " * 9, " " * 10, " " * 9 + "b", "c         "] and cursor == (3, 1)


def test_escapes_of_a_strangers_are_passed_over():
    output = b"\x1b]0;a title\x07\x1b[?1049h\x1b[6n\x1b(0\x9b31mok\x1b[999999999;999999999H\x1b[38;5;196m!\x1b"
    rows, _, cursor = shown(output, 4, 20)
    assert rows[3].endswith("!") and cursor == (3, 19)
    assert all(" " <= letter <= "~" for row in rows for letter in row)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from([b"\x1b", b"[", b";", b"7", b"H", b"J", b"m", b"\n", b"\b", b"\t", b"A", b"\xff", b"x"]))
)
def test_whatever_comes_there_is_a_screen(pieces):
    terminal = Terminal(3, 7)
    terminal.feed(b"".join(pieces))
    screen = terminal.screen()
    assert ((screen.chars >= 32) & (screen.chars < 127)).all() and (screen.colors < 32).all()
    assert screen.cursor is not None and screen.cursor[0] < 3 and screen.cursor[1] < 7
