"""Recorded episodes are believed only where they can be: sizes, types, values, regular files."""

import os
import pathlib
import zipfile
from typing import Any

import numpy as np
import pytest

from oni_jax.offline.segment_episodes import Segment, read_episodes, write_episodes
from oni_jax.settings.fields import UserError
from tests.support.trials import trial


@pytest.fixture
def path(tmp_path):
    captions = [b"You see %d." % i for i in range(5)]
    episode = Segment({"x": np.arange(5.0)}, captions, np.arange(4), np.ones(4, np.float32))
    write_episodes(str(tmp_path / "a.npz"), [episode, episode])
    return str(tmp_path / "a.npz")


def replace(path: str, **changed: np.ndarray) -> None:
    arrays: dict[str, Any] = dict(np.load(path))
    arrays |= {name.replace("__", "/"): x for name, x in changed.items()}
    np.savez_compressed(path, **arrays)


def refusal(path: str) -> str:
    with pytest.raises(UserError, match="is no file of episodes") as error:
        read_episodes(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_whole_file_is_read(path):
    assert [episode.length for episode in read_episodes(path)] == [4, 4]


BAD = {
    "rewards": [
        np.full(8, np.nan),
        np.full(8, np.inf),
        np.ones(8, complex),
        np.full(8, "1"),
        np.ones((8, 2)),
        np.full(8, 1e300),
    ],
    "actions": [
        np.full(8, 0.5),
        np.full(8, -1),
        np.ones(8, bool),
        np.full(8, "1"),
        np.ones(9, int),
        np.full(8, 1 << 40),
    ],
    "lengths": [np.array([8.0]), np.array([9, -1]), np.array([], int), np.array([10**12]), np.array(8)],
    "caption_index": [np.full(10, -1), np.full(10, 99), np.full(10, 0.5)],
    "terminated": [np.full(2, 0.5), np.full(3, True)],
    "starts": [np.full(2, -1), np.full(2, 0.5)],
    "observations__x": [np.full(10, np.nan), np.full(10, "1"), np.ones(9), np.ones(10, complex)],
}


@trial("recorded episodes damaged")
@pytest.mark.parametrize(("name", "values"), [(name, x) for name, row in BAD.items() for x in row])
def test_values_that_no_episode_has_are_refused(path, name, values):
    replace(path, **{name: values})
    refusal(path)


@trial("recorded episodes damaged")
def test_files_that_grow_when_unpacked_are_not_unpacked(path):
    replace(path, observations__x=np.zeros((10, 1 << 21), np.uint8))
    assert "too large" in refusal(path)


@trial("recorded episodes damaged")
def test_array_that_is_not_as_large_as_it_says_is_refused(path):
    with zipfile.ZipFile(path, "a") as file, file.open("observations/y.npy", "w") as stream:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10, 1 << 40)}
        np.lib.format.write_array_header_1_0(stream, header)
    assert "not as large as it says" in refusal(path)


@trial("recorded episodes damaged")
@pytest.mark.parametrize("name", ["²1.npz", "a\nb.npz", "1٣.npz", "\udcff.npz"])
def test_episodes_are_found_under_any_name(path, tmp_path, name):
    os.link(path, tmp_path / name)
    assert len(read_episodes(str(tmp_path))) == 4


@trial("recorded episodes damaged")
def test_other_file_is_refused_without_advice_to_unpickle_it(path):
    for content in (b"", b"text", b"PK", b"\x80\x04N."):
        pathlib.Path(path).write_bytes(content)
        assert "pickle" not in refusal(path)


@trial("recorded episodes damaged")
def test_links_and_pipes_are_refused(path, tmp_path):
    os.symlink(path, tmp_path / "link.npz")
    os.mkfifo(tmp_path / "pipe.npz")
    for name in ("link.npz", "pipe.npz"):
        refusal(str(tmp_path / name))
