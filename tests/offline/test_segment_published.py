"""BK's published data sets, written here by NumPy in the recorded form, are read without running code."""

import json
import os
import pickle

import numpy as np
import pytest

from oni_jax.host.runtime import StopRequest
from oni_jax.networks.bk import MINIGRID_SCALE
from oni_jax.offline.play import random_episodes
from oni_jax.offline.segment_episodes import Segment, read_episodes, write_episodes
from oni_jax.offline.segment_published import read_published_preferences
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import FIRST, SECOND, TIE, UNKNOWN
from tests.golden import data_file
from tests.support.trials import trial

FORMAT = json.loads(data_file("bk_dataset_format.json").read_text())["minigrid"]["keys"]


@pytest.fixture(scope="module")
def episodes() -> list[Segment]:
    config = EnvConfig(root_env="BabyAI-Text-GoToLocal-RedBall-S20", max_episode_steps=20)
    return random_episodes(config, 3, 1, StopRequest())


def entry(segment: Segment) -> dict:
    """An episode, or a segment, in the recorded form."""
    images = np.moveaxis(segment.observations["image"] / np.array(MINIGRID_SCALE, np.float32), -1, 1)
    truncated = np.zeros(segment.length, bool)
    truncated[-1] = not segment.terminated
    made = {
        "timestep": np.arange(segment.start, segment.start + segment.length),
        "action": segment.actions.astype(np.int64),
        "reward": segment.rewards.astype(np.float64),
        "terminated": np.arange(segment.length) == (segment.length - 1 if segment.terminated else -1),
        "truncated": truncated,
        "infos": np.array([{"step": np.float64(i)} for i in range(segment.length)], object),
        "image": images.astype(np.float32),
        "direction": segment.observations["direction"].astype(np.int64).ravel(),
        "mission": np.array(["go to a red ball"] * (segment.length + 1)),
        "description": np.array([caption.decode() for caption in segment.captions]),
    }
    assert {key: x.dtype.kind for key, x in made.items()} == {
        key: np.dtype(kind).kind for key, (kind, _) in FORMAT.items()
    }
    return made


def objects(rows: list) -> np.ndarray:
    made = np.empty(np.shape(rows) if isinstance(rows[0], list) else len(rows), object)
    made[...] = rows
    return made


def save(path, rows: list) -> str:
    np.save(path, objects(rows), allow_pickle=True)
    return str(path)


def assert_equal(one: Segment, other: Segment) -> None:
    assert one.observations.keys() == other.observations.keys() and list(one.captions) == list(other.captions)
    for name, x in one.observations.items():
        np.testing.assert_array_equal(x.reshape(len(x), -1), other.observations[name].reshape(len(x), -1))
    np.testing.assert_array_equal(one.actions, other.actions)
    np.testing.assert_array_equal(one.rewards, other.rewards)
    assert (one.terminated, one.start) == (other.terminated, other.start)


def test_episodes_are_those_that_were_played(episodes, tmp_path):
    found = read_episodes(save(tmp_path / "step0-e3.npy", [entry(episode) for episode in episodes]))
    assert len(found) == len(episodes)
    for one, other in zip(found, episodes):
        assert_equal(one, other)


def test_a_folder_is_read_in_the_order_of_its_steps(episodes, tmp_path):
    for number, episode in zip((500, 1000, 20), episodes):
        save(tmp_path / f"step{number}-e1.npy", [entry(episode)])
    write_episodes(str(tmp_path / "step000000002000.npz"), episodes[:1])
    found = read_episodes(str(tmp_path))
    for one, other in zip(found, [episodes[2], *episodes[:2], episodes[0]], strict=True):
        assert_equal(one, other)


def test_labelled_pairs(episodes, tmp_path):
    parts = [episode.part(start, 5) for episode in episodes for start in (0, 3, 7)][:8]
    rows = [[entry(parts[2 * i]), entry(parts[2 * i + 1]), label] for i, label in enumerate((0, 1, 0.5, -1))]
    found, labels = read_published_preferences(save(tmp_path / "dataset.npy", rows))
    assert labels.tolist() == [FIRST, SECOND, TIE, UNKNOWN]
    for one, other in zip(found, parts, strict=True):
        assert_equal(one, other)
    assert {segment.start for segment in found} == {0, 3, 7}


def test_the_first_step_is_kept(episodes, tmp_path):
    part = episodes[0].part(4, 6).part(1, 2)
    write_episodes(str(tmp_path / "a.npz"), [part])
    assert part.start == 5 and read_episodes(str(tmp_path / "a.npz"))[0].start == 5


class Runs:
    def __reduce__(self):
        return os.system, ("touch ran",)


def changed(segment: Segment, **changes) -> dict:
    return {**entry(segment), **changes}


@pytest.mark.parametrize("read", [read_episodes, read_published_preferences])
def test_pickles_never_run(read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = objects([Runs()])
    np.save("array.npy", whole, allow_pickle=True)
    (tmp_path / "bare.npy").write_bytes(pickle.dumps(Runs()))
    for name in ("array.npy", "bare.npy"):
        with pytest.raises(UserError, match=name):
            read(name)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(UserError, match="posix.system"):
        read("array.npy")


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda episode: [{"image": 1}], "without image, description"),
        (lambda episode: [3], "without image, description"),
        (lambda episode: [changed(episode, action=np.zeros(2, int))], "no segment"),
        (lambda episode: [changed(episode, image=np.zeros((episode.length + 1, 7, 7), np.float32))], "no segment"),
        (
            lambda episode: [changed(episode, image=np.full((episode.length + 1, 3, 7, 7), np.nan, np.float32))],
            "no segment",
        ),
        (
            lambda episode: [changed(episode, image=np.full((episode.length + 1, 3, 7, 7), 0.123, np.float32))],
            "no segment",
        ),
        (lambda episode: [changed(episode, reward=np.full(episode.length, np.inf))], "no segment"),
        (lambda episode: [[1, 2, 3]], "no published data set"),
    ],
)
def test_bad_files(make, words, episodes, tmp_path):
    path = save(tmp_path / "bad.npy", make(episodes[0]))
    with pytest.raises(UserError, match=words) as error:
        read_episodes(path)
    assert path in str(error.value) and "\n" not in str(error.value)


CHANGES = {
    "action": [[0.5], [np.nan], [-1], [1 << 40], ["a"], [None], [True]],
    "reward": [[1j], ["1"], [1e300], [np.nan]],
    "terminated": [["False"], [0.5]],
    "timestep": [[np.inf], [-1], [10**400], [0.5]],
    "direction": [[np.nan], ["a"], [1.5]],
    "description": [["a\0b"]],
}


@trial("recorded episodes damaged")
@pytest.mark.parametrize(("key", "values"), [(key, x) for key, row in CHANGES.items() for x in row])
def test_published_values_that_no_episode_has_are_refused(key, values, episodes, tmp_path):
    number = episodes[0].length + (key in ("direction", "description"))
    path = save(tmp_path / "bad.npy", [changed(episodes[0], **{key: np.array(values * number)})])
    with pytest.raises(UserError, match="no segment") as error:
        read_episodes(path)
    assert "\n" not in str(error.value)


def test_damaged_files(episodes, tmp_path):
    path = save(tmp_path / "cut.npy", [entry(episode) for episode in episodes])
    whole = (tmp_path / "cut.npy").read_bytes()
    for content in (whole[: len(whole) // 2], whole[:20], b"", b"text", whole[:130] + b"\xff" + whole[131:]):
        (tmp_path / "cut.npy").write_bytes(content)
        with pytest.raises(UserError, match="cut.npy"):
            read_episodes(path)
    np.save(path, np.zeros(3))
    with pytest.raises(UserError, match="holds float64"):
        read_episodes(path)
