"""A preference file that several processes fill."""

import numpy as np
import pytest

from oni_jax.config import UserError
from oni_jax.preferences.preference_file import PreferenceFile, chunk_rows


def test_chunks_share_the_rows_out():
    for num_chunks in (1, 3, 7, 12):
        chunks = [chunk_rows(10, num_chunks, chunk) for chunk in range(num_chunks)]
        assert [row for chunk in chunks for row in chunk] == list(range(10))
        assert max(map(len, chunks)) - min(map(len, chunks)) <= 1


def test_what_is_unreadable_is_finished_and_what_is_published_needs_nothing_beside_it(tmp_path):
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
        file.forget()
        assert file.unfinished().tolist() == [0, 1, 2, 3]


def test_a_published_file_keeps_its_type(tmp_path):
    (tmp_path / "preference").mkdir()
    np.save(tmp_path / "preference" / "a.npy", np.array([3, 0, 1], np.int64))
    with PreferenceFile(str(tmp_path), "a", 3, range(3)) as file:
        file.write(np.array([0]), 2)
    labels = np.load(tmp_path / "preference" / "a.npy")
    assert labels.tolist() == [2, 0, 1] and labels.dtype == np.int64


@pytest.mark.parametrize("labels", [np.array([0, 1]), np.array([[0, 1, 2]]), np.array([0, 1, 4]), np.array([None] * 3)])
def test_files_that_do_not_fit_are_refused(tmp_path, labels):
    (tmp_path / "preference").mkdir()
    np.save(tmp_path / "preference" / "a.npy", labels)
    with pytest.raises(UserError, match="preference/a.npy"):
        PreferenceFile(str(tmp_path), "a", 3, range(3))
