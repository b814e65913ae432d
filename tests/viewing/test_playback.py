"""What the keys do to a recording that is watched."""

from oni_jax.viewing.playback import Pace, Playback, view
from oni_jax.viewing.screen import ROWS
from tests.viewing.games import write_ttyrec

START = Playback(3, Pace(8.0))


def pressed(keys: str) -> Playback:
    playback = START
    for key in keys:
        playback = playback.pressed(ord(key))
    return playback


def test_time_passes_unless_it_is_paused():
    playback = Playback(3, Pace(8.0))
    assert playback.advanced().index == 1
    assert playback.advanced().advanced().advanced().index == 2
    assert pressed(" ").advanced().index == 0
    assert pressed("  ").advanced().index == 1


def test_steps_pause():
    assert pressed("..").index == 2 and pressed("..").pace.paused
    assert pressed("....,").index == 1
    assert pressed(",").index == 0
    assert pressed("$").index == 2 and pressed("$0").index == 0


def test_speed_and_leaving():
    assert pressed("+").pace.per_sec == 16 and pressed("=").pace.per_sec == 16 and pressed("--").pace.per_sec == 2
    assert pressed("+" * 20).pace.per_sec == 128 and pressed("-" * 20).pace.per_sec == 0.5
    assert pressed("q").pace.quit and not pressed("zx").pace.quit


def test_what_is_shown(tmp_path):
    sent = (b"\x1b[Hfirst", ord("k")), (b"\x1b[Hsecond", ord("j")), (b"\x1b[Hthird ", None)
    film = write_ttyrec(tmp_path / "film", *sent)
    playback = pressed(".")
    rows = view(film, playback, ROWS + 2, 80)
    assert len(rows) == ROWS + 2 and "second" in rows[0]
    assert "screen 2 of 3, paused; then south (j)" in rows[ROWS] and "space pause" in rows[ROWS + 1]
    assert "screen 3 of 3, end" in view(film, pressed("$"), ROWS + 1, 80)[ROWS]
    assert len(view(film, playback, ROWS, 80)) == ROWS
    assert len(view(film, playback, 3, 10)) == 3
