"""Screens as arrays, beside each other, and as text for a terminal."""

import numpy as np

from oni_jax.envs.display import INVERSE, Terminal
from oni_jax.envs.screen import (
    CYAN,
    GRAY,
    WHITE,
    Screen,
    Text,
    ansi_rows,
    blank,
    cropped,
    joined,
    terminal_screen,
    text_screen,
)
from oni_jax.show.panel import beside, number
from tests.show.games import terminal


def rows_of(screen: Screen) -> list[str]:
    return [row.tobytes().decode() for row in screen.chars]


def test_screen_of_an_engine():
    chars = np.array([[ord("@"), 0, 27, 200]], np.uint8)
    colors = np.array([[15, 0, 23, 3]], np.int8)
    screen = terminal_screen(Terminal(chars, colors, np.array([0, 2], np.uint8)))
    assert rows_of(screen) == ["@ ??"] and screen.cursor == (0, 2)
    assert screen.colors.tolist() == [[WHITE, 0, GRAY + INVERSE, 3]]


def test_a_terminal_shows_the_text_as_it_was(tmp_path):
    rng = np.random.default_rng(0)
    chars = rng.integers(32, 127, (24, 79)).astype(np.uint8)
    colors = rng.integers(1, 8, (24, 79)).astype(np.uint8) + INVERSE * rng.integers(0, 2, (24, 79)).astype(np.uint8)
    screen = Screen(chars, colors, (2, 3))
    found = terminal(tmp_path / "rows.ttyrec3.bz2", "\r\n".join(ansi_rows(screen)).encode())
    np.testing.assert_array_equal(found.chars[:, :79], chars)
    expected = colors.copy()
    expected[2, 3] ^= INVERSE
    np.testing.assert_array_equal(found.colors[:, :79], expected)


def test_bright_colours_are_the_terminal_s():
    (row,) = ansi_rows(text_screen([Text("ab", WHITE)], 1, 2))
    assert row.startswith("\x1b[0;40;97mab")


def test_texts_are_wrapped_and_cut_off():
    screen = text_screen([Text("one two three", CYAN), Text(""), Text("a\x1b[31mb")], 4, 8)
    assert rows_of(screen) == ["one two ", "  three ", "        ", "a?[31mb "]
    assert screen.colors[0, 0] == CYAN and screen.colors[3, 0] == GRAY


def test_texts_beside_and_below():
    left, right = text_screen([Text("ab")], 2, 2), text_screen([Text("c")], 3, 1)
    assert rows_of(joined([left, right])) == ["abc", "   ", "   "]
    assert rows_of(joined([left, right], below=True)) == ["ab", "  ", "c ", "  ", "  "]
    assert beside(blank(24, 80), []).chars.shape == (24, 119)


def test_cropping_leaves_a_cursor_outside_behind():
    screen = Screen(*blank(3, 4)[:2], (2, 3))
    assert cropped(screen, 3, 4).cursor == (2, 3)
    assert cropped(screen, 2, 4).cursor is None and cropped(screen, 2, 3).chars.shape == (2, 3)


def test_numbers():
    assert [number(x) for x in (0, 0.5, -0.01, 1 / 27, 50, 1234.5, 12.345678)] == [
        "0", "0.5", "-0.01", "0.03704", "50", "1,234", "12.35",
    ]  # fmt: skip
