"""A preference file that several processes fill."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from oni_jax.offline.preference_file import PreferenceFile, chunk_rows
from oni_jax.settings.fields import UserError
from tests.support.full_disk import full_disk


def test_chunks_share_the_rows_out():
    for num_chunks in (1, 3, 7, 12):
        chunks = [chunk_rows(10, num_chunks, chunk) for chunk in range(num_chunks)]
        assert [row for chunk in chunks for row in chunk] == list(range(10))
        assert max(map(len, chunks)) - min(map(len, chunks)) <= 1


def test_unreadable_rows_are_finished_and_a_published_file_stands_alone(tmp_path):
    with PreferenceFile(str(tmp_path), "a", 4, range(4)) as file:
        assert file.unfinished().tolist() == [0, 1, 2, 3]
        file.write(np.array([1, 2]), np.array([2, 3]))
        assert file.unfinished().tolist() == [0, 3]
    with PreferenceFile(str(tmp_path), "a", 4, range(2, 4)) as file:
        assert file.unfinished().tolist() == [3]
    assert np.load(tmp_path / "preference" / "a.npy").tolist() == [3, 2, 3, 3]
    (tmp_path / "preference" / "a.unreadable").unlink()
    with PreferenceFile(str(tmp_path), "a", 4, range(4)) as file:
        assert file.unfinished().tolist() == [0, 2, 3]
        file.write(np.array([2]), 1)
        file.clear()
        assert file.unfinished().tolist() == [0, 1, 2, 3]


def test_a_published_file_keeps_its_type(tmp_path):
    (tmp_path / "preference").mkdir()
    np.save(tmp_path / "preference" / "a.npy", np.array([3, 0, 1], np.int64))
    with PreferenceFile(str(tmp_path), "a", 3, range(3)) as file:
        file.write(np.array([0]), 2)
    labels = np.load(tmp_path / "preference" / "a.npy")
    assert labels.tolist() == [2, 0, 1] and labels.dtype == np.int64


@pytest.mark.parametrize(
    "labels",
    [np.array([0, 1]), np.array([[0, 1, 2]]), np.array([0, 1, 4]), np.array([None] * 3), np.array([True] * 3)],
)
def test_files_that_do_not_fit_are_refused(tmp_path, labels):
    (tmp_path / "preference").mkdir()
    np.save(tmp_path / "preference" / "a.npy", labels)
    with pytest.raises(UserError, match="preference/a.npy"):
        PreferenceFile(str(tmp_path), "a", 3, range(3))


def test_a_full_disk_is_told_in_a_line_and_nothing_stays(tmp_path):
    with full_disk(1000), pytest.raises(UserError, match="can't be written") as error:
        PreferenceFile(str(tmp_path), "a", 10_000, range(10_000))
    assert "None" not in str(error.value) and os.listdir(tmp_path / "preference") == []


@pytest.mark.parametrize("name", ["a.npy", "a.unreadable"])
def test_no_write_follows_a_link(tmp_path, name):
    (tmp_path / "preference").mkdir()
    np.save(tmp_path / "preference" / "a.npy", np.full(3, 3, np.int8))
    victim = tmp_path / "victim"
    if name == "a.npy":
        (tmp_path / "preference" / name).rename(victim)
    os.symlink(victim, tmp_path / "preference" / name)
    with pytest.raises(UserError, match="is a link"):
        PreferenceFile(str(tmp_path), "a", 3, range(3))
    assert victim.exists() == (name == "a.npy")


def test_labels_that_are_mostly_a_hole_get_their_room_first(tmp_path):
    (tmp_path / "preference").mkdir()
    path = tmp_path / "preference" / "a.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype=np.int8, shape=(1_000_000,)).flush()
    assert path.stat().st_blocks * 512 < 1_000_000
    with PreferenceFile(str(tmp_path), "a", 1_000_000, range(5)):
        assert path.stat().st_blocks * 512 >= 1_000_000
        assert (tmp_path / "preference" / "a.unreadable").stat().st_blocks * 512 >= 1_000_000


LABELLER = textwrap.dedent("""
    import sys, itertools, numpy as np
    from oni_jax.offline.preference_file import PreferenceFile
    with PreferenceFile(sys.argv[1], "a", 1000, range(1000)) as file:
        for row in itertools.cycle(range(1000)):
            file.write(np.array([row]), row % 4)
            print(row, flush=True)
""")


def test_a_killed_process_loses_no_label_and_no_lock_stays(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", LABELLER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    while (row := int(process.stdout.readline())) < 50:
        pass
    with pytest.raises(UserError, match="another process"):
        PreferenceFile(str(tmp_path), "a", 1000, range(1000))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with PreferenceFile(str(tmp_path), "a", 1000, range(1000)) as file:
        assert not set(file.unfinished()) & set(range(row + 1))
    labels = np.load(tmp_path / "preference" / "a.npy")
    np.testing.assert_array_equal(labels[: row + 1], np.arange(row + 1) % 4)
    assert sorted(os.listdir(tmp_path / "preference")) == ["a.npy", "a.unreadable"]
