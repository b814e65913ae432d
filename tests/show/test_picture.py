"""Screens as pictures, and pictures as videos."""

import sys

import numpy as np
import pytest
from PIL import Image, ImageSequence

from oni_jax.envs.display import INVERSE
from oni_jax.envs.screen import RED, Screen, Text, text_screen
from oni_jax.settings.fields import UserError
from oni_jax.show.picture import COLORS, NUM_LEVELS, cells, palette, picture
from oni_jax.show.video import check_format, write_video


def test_a_cell_has_its_character_in_its_colour():
    screen = text_screen([Text("#a", RED)], 1, 3)
    found = picture(screen)
    height, width = cells(16).shape[1:]
    assert found.shape == (height + height % 2, 3 * width + 3 * width % 2)
    shape = found[:height, :width]
    np.testing.assert_array_equal(shape > 0, cells(16)[ord("#")] > 0)
    assert set(np.unique(shape // NUM_LEVELS)) == {0, RED}
    assert not found[:, 2 * width :].any()  # a blank is black
    assert tuple(palette()[RED * NUM_LEVELS + NUM_LEVELS - 1]) == COLORS[RED]


def test_the_cursor_is_inverted():
    screen = text_screen([Text("#")], 1, 2)
    plain, inverted = picture(screen), picture(Screen(screen.chars, screen.colors, (0, 0)))
    width = cells(16).shape[2]
    assert (plain[:, :width] % NUM_LEVELS + inverted[:, :width] % NUM_LEVELS == NUM_LEVELS - 1)[:-1].all()
    np.testing.assert_array_equal(plain[:, width:], inverted[:, width:])
    colors = screen.colors ^ INVERSE
    assert (picture(Screen(screen.chars, colors)) > 0).mean() > 0.5


def test_characters_can_be_told_apart():
    drawn = cells(16)
    known = [drawn[code].tobytes() for code in range(33, 127)]
    assert len(set(known)) == len(known)
    assert all(drawn[code].max() >= NUM_LEVELS - 2 for code in b"@#|-.<>+dZ$%")


def pictures(num: int) -> list[np.ndarray]:
    return [picture(text_screen([Text(f"picture {i}", i % 15 + 1)], 2, 12)) for i in range(num)]


def test_a_gif_holds_the_pictures(tmp_path):
    path = tmp_path / "a.gif"
    write_video(str(path), iter(pictures(4)), 8.0)
    image = Image.open(path)
    assert len(list(ImageSequence.all_frames(image))) == 4 and image.info["loop"] == 0
    durations = []
    for index, expected in enumerate(pictures(4)):
        image.seek(index)
        durations.append(image.info["duration"])
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), palette()[expected])
    assert durations[0] == durations[2] == pytest.approx(125, abs=10) and durations[3] == 3000


def test_equal_pictures_keep_their_time(tmp_path):
    path = tmp_path / "a.gif"
    write_video(str(path), [pictures(1)[0]] * 5, 8.0)
    image = Image.open(path)
    total = 0
    for index in range(len(list(ImageSequence.all_frames(image)))):
        image.seek(index)
        total += image.info["duration"]
    assert total == pytest.approx(4 * 125 + 3000, abs=50)


def test_an_mp4(tmp_path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / "a.mp4"
    write_video(str(path), iter(pictures(4)), 8.0)
    reader = imageio_ffmpeg.read_frames(str(path))
    about = next(reader)
    height, width = pictures(1)[0].shape
    assert about["size"] == (width, height)
    first = np.frombuffer(next(reader), np.uint8).reshape(height, width, 3).astype(int)
    assert np.abs(first - palette()[pictures(1)[0]]).mean() < 12
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize("before_it_ends", ["", "cat > /dev/null; touch {}; "], ids=["at once", "at last"])
def test_ffmpeg_s_last_words_are_told_and_nothing_is_left(tmp_path, monkeypatch, before_it_ends):
    pytest.importorskip("imageio_ffmpeg")
    folder = tmp_path / "films"
    folder.mkdir()
    script = tmp_path / "ffmpeg"
    wait = before_it_ends.format(folder / "a.mp4.partial")
    script.write_text(f"#!/bin/sh\n{wait}echo something >&2; echo no room >&2; exit 3\n")
    script.chmod(0o700)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(script))
    with pytest.raises(UserError, match=r"a.mp4: ffmpeg can't write it \(no room\); use --record_format gif"):
        write_video(str(folder / "a.mp4"), iter(pictures(4) * 20), 8.0)
    assert list(folder.iterdir()) == []


def test_a_missing_codec_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UserError, match="imageio-ffmpeg; install it, or use --record_format gif"):
        check_format("mp4")
    check_format("gif")
