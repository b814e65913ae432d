"""The published directory format: what loads, and what is refused in one line that names the file."""

import math
import os
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oni_jax.offline.dataset import PairDataset, as_labels, create_dataset, open_array
from oni_jax.offline.preference_file import PreferenceFile
from oni_jax.settings.fields import UserError
from tests.offline.pairs import padded, random_dataset, write_dataset
from tests.support.full_disk import full_disk

KEYS = ["data/message", "data/blstats", "info/score"]


def refusal(directory, keys, read=lambda dataset: None) -> str:
    with pytest.raises(UserError) as error:
        read(PairDataset(str(directory), keys))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_created_dataset_is_read_back(tmp_path):
    created = create_dataset(str(tmp_path), {"data/message": ((3, 2, 4, 256), "uint8"), "info/score": ((3, 2), "<i8")})
    created["data/message"][1, 0, 2, :2] = 65, 66
    created["info/score"][2] = 5, 7
    dataset = PairDataset(str(tmp_path), ["data/message", "info/score"])
    assert (dataset.num_pairs, dataset.num_steps) == (3, 4)
    assert dataset.messages(np.array([1]))[0, 0, 2].tobytes().rstrip(b"\0") == b"AB"
    np.testing.assert_array_equal(dataset.numbers("info/score"), [[0, 0], [0, 0], [5, 7]])
    assert isinstance(dataset["data/message"], np.memmap)


def test_odd_types_and_extra_keys_load(tmp_path):
    messages = padded([[[b"one"], [b"two\xe9"]], [[b""], [b"three"]]])
    write_dataset(
        tmp_path,
        {
            "data/message": messages.astype(np.int64),
            "data/blstats": np.ones((2, 2, 1, 25), np.float32),
            "data/rewards": np.ones((2, 2, 1), np.float64),
            "data/tty_cursor": np.zeros((2, 2, 1, 2), np.int8),
            "info/score": np.ones((2, 2), np.float64),
            "info/character": np.array([["mon", "mon"]] * 2),
            "preference/somebody": np.array([3, 1], np.int64),
        },
    )
    dataset = PairDataset(str(tmp_path), [*KEYS, "data/rewards", "preference/somebody"])
    np.testing.assert_array_equal(dataset.messages(slice(None)), messages)
    assert dataset.blstats(slice(0, 1)).dtype == np.int64
    labels = dataset.preferences("somebody")
    assert labels.dtype == np.int8 and labels.tolist() == [3, 1]


@pytest.mark.parametrize(
    "key, array, words",
    [
        ("data/message", None, "no such file"),
        ("info/score", None, "no such file"),
        ("info/score", np.zeros((19, 2)), "19 pairs, but 20"),
        ("info/score", np.zeros(20), "(pairs, 2)"),
        ("info/score", np.array([[None, None]] * 20), "can't be read"),
        ("info/score", np.array([["a", "b"]] * 20), "holds no numbers"),
        ("data/blstats", np.zeros((20, 2, 3, 27)), "3 steps a sub-episode, but 2"),
        ("data/blstats", np.zeros((20, 3, 2, 27)), "(pairs, 2, steps"),
        ("data/message", np.zeros((0, 2, 2, 256), np.uint8), "holds no pairs"),
    ],
)
def test_refused_when_opened(tmp_path, key, array, words):
    random_dataset(tmp_path)
    (tmp_path / f"{key}.npy").unlink()
    if array is not None:
        np.save(tmp_path / f"{key}.npy", array)
    text = refusal(tmp_path, KEYS)
    assert words in text and f"{tmp_path}/{key}.npy" in text


@pytest.mark.parametrize("contents", [b"", b"PK\x03\x04", b"no array", b"\x93NUMPY\x01\x00v\x00{'descr'"])
def test_a_damaged_file_is_refused(tmp_path, contents):
    random_dataset(tmp_path)
    (tmp_path / "info" / "score.npy").write_bytes(contents)
    assert "info/score.npy" in refusal(tmp_path, KEYS)


def test_a_file_cut_short_is_refused(tmp_path):
    path = random_dataset(tmp_path) / "data" / "message.npy"
    path.write_bytes(path.read_bytes()[:1000])
    assert str(path) in refusal(tmp_path, KEYS)


@pytest.mark.parametrize(
    "key, array, words",
    [
        ("data/message", np.full((20, 2, 2, 256), 256), "not bytes"),
        ("data/message", np.full((20, 2, 2, 256), 0.5), "not bytes"),
        ("data/message", np.zeros((20, 2, 2), np.uint8), "not (pairs, 2, steps, bytes)"),
        ("data/blstats", np.zeros((20, 2, 2, 10)), "22 or more"),
        ("data/blstats", np.full((20, 2, 2, 27), np.nan), "NaN or inf"),
        ("info/score", np.full((20, 2), np.nan), "holds NaN"),
        ("info/score", np.full((20, 2), np.inf), "holds NaN or inf"),
        ("preference/a", np.full(20, 4), "the label 4"),
        ("preference/a", np.full(20, -1), "the label -1"),
        ("preference/a", np.full(20, 256), "the label 256"),
        ("preference/a", np.full(20, 0.5), "the label 0.5"),
    ],
)
def test_refused_when_read(tmp_path, key, array, words):
    random_dataset(tmp_path)
    write_dataset(tmp_path, {"preference/a": np.zeros(20, np.int8), key: array})

    def read(dataset):
        dataset.messages(slice(None))
        dataset.blstats(slice(None))
        dataset.numbers("info/score")
        dataset.preferences("a")

    text = refusal(tmp_path, [*KEYS, "preference/a"], read)
    assert words in text and f"{tmp_path}/{key}.npy" in text


def test_no_directory(tmp_path):
    assert str(tmp_path / "x") in refusal(tmp_path / "x", KEYS)


def header(shape: str, descr: str = "'|u1'", order: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


HEADERS = [
    header("(20, 99999999999)"),
    header("(2305843009213693952, 8)"),  # whose product wraps around to 0
    header("(-1, 2)"),
    header("(20, 2)", "'|O'"),
    header("(20, 2)", "'nonsense'"),
    header("(20, 2)", "[]"),
    header("(20, 2)", "(1, 2, 3)"),
    header("(" * 900),
    header("'text'"),
    header("(20, 2)", order="7"),
    b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
    b"\x93NUMPY\x09\x00" + bytes(100),
]


@pytest.mark.parametrize("contents", HEADERS)
@pytest.mark.parametrize("writable", [False, True])
def test_headers_that_claim_what_is_not_there(tmp_path, contents, writable):
    path = tmp_path / "a.npy"
    path.write_bytes(contents + bytes(40))
    with pytest.raises(UserError) as error:
        open_array(str(path), writable)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    assert path.stat().st_size == len(contents) + 40  # NumPy would lengthen a file that it may write


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_path_without_a_file_is_refused(tmp_path, make):
    random_dataset(tmp_path)
    (tmp_path / "info" / "score.npy").unlink()
    make(tmp_path / "info" / "score.npy")
    assert "is not a regular file" in refusal(tmp_path, KEYS)


def test_a_full_disk_is_told_before_anything_is_written(tmp_path):
    arrays = {"data/message": ((3000, 2, 4, 256), "uint8")}
    with full_disk(1_000_000), pytest.raises(OSError):
        create_dataset(str(tmp_path / "a"), arrays)
    array = create_dataset(str(tmp_path / "b"), arrays)["data/message"]
    assert os.stat(tmp_path / "b" / "data" / "message.npy").st_blocks * 512 >= array.nbytes


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_files_hold_they_are_read_or_refused(tmp_path, data):
    random_dataset(tmp_path, num_pairs=3)
    write_dataset(tmp_path, {"preference/a": np.zeros(3, np.int8)})
    key = data.draw(st.sampled_from([*KEYS, "preference/a"]))
    path = tmp_path / f"{key}.npy"
    if data.draw(st.booleans()):
        dtypes = ["|b1", "|i1", "<u2", ">i4", "<f2", "<f8", "<c8", "|S3", "<M8[s]"]
        shape, dtype = data.draw(st.lists(st.integers(0, 4), max_size=5)), np.dtype(data.draw(st.sampled_from(dtypes)))
        contents = bytes([data.draw(st.integers(0, 255))]) * math.prod(shape) * dtype.itemsize
        np.save(path, np.frombuffer(contents, dtype).reshape(shape))
    else:
        contents = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 5))):
            contents[data.draw(st.integers(0, min(140, len(contents) - 1)))] = data.draw(st.integers(0, 255))
        path.write_bytes(bytes(contents[: data.draw(st.sampled_from([len(contents), 130, 70, 9]))]))
    try:
        dataset = PairDataset(str(tmp_path), [*KEYS, "preference/a"])
        assert dataset.messages(slice(None)).shape[:3] == dataset.blstats(slice(None)).shape[:3]
        assert dataset.numbers("info/score").shape == (3, 2)
        dataset.preferences("a")
        with PreferenceFile(str(tmp_path), "a", 3, range(3)) as file:
            file.write(file.unfinished(), 1)
    except UserError as error:
        assert str(tmp_path) in str(error) and "\n" not in str(error)
    for name in ("a.npy", "a.unreadable"):
        (tmp_path / "preference" / name).unlink(missing_ok=True)


def test_labels_that_another_process_writes_meanwhile_are_read_as_they_were_at_some_time(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(1_000_000, np.int8))
    mapped = open_array(str(tmp_path / "a.npy"), writable=True)
    done = threading.Event()

    def write():
        while not done.is_set():
            for label in range(4):
                mapped[:] = label

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(50):
            as_labels("a.npy", mapped)
    finally:
        done.set()
        writer.join()
