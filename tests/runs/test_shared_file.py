"""Shared files have equal bytes for equal contents, are read by others, and are refused in a line where damaged."""

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni_jax.runs.shared_file import Shared, find_shared, pack, read_shared, run_name
from oni_jax.settings.fields import UserError

TEXTS = {"card.md": b"# x", "config.json": b"{}", "scores.json": b"{}", "answers.json": b"[]"}
ARRAYS = {"policy/params/kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "reward/texts": np.array([b"a", b"bc"])}
SHARED = Shared("caught", 640, "CC0-1.0", "oni_jax 0.1.0", TEXTS, ARRAYS)


def refusal(path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(UserError) as error:
        read_shared(str(path))
    text = str(error.value)
    assert str(path) in text and "\n" not in text and text.isprintable() and len(text) < 500
    return text


def summed(data: bytes) -> bytes:
    """A zip with a comment of 64 bytes, with the right checksum in it."""
    return data[:-64] + hashlib.sha256(data[:-64]).hexdigest().encode()


def zipped(
    entries: Mapping[str, bytes], manifest: Mapping | None = None, compression: int = zipfile.ZIP_STORED
) -> bytes:
    """A file with checksums that hold, whatever it holds."""
    file = io.BytesIO()
    about: dict[str, Any] = {
        "format": "oni_jax policy",
        "version": 1,
        "written_by": "x",
        "name": "n",
        "env_steps": 1,
        "licence": "",
    }
    about["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in entries.items()}
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in {**entries, "manifest.json": json.dumps({**about, **(manifest or {})}).encode()}.items():
            archive.writestr(name, content)
        archive.comment = b"0" * 64
    return summed(file.getvalue())


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def npy_of(header: str) -> bytes:
    text = header.encode() + b" " * (-len(header) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def test_content_is_read_as_it_was_written(tmp_path):
    (tmp_path / "x.zip").write_bytes(pack(SHARED))
    found = read_shared(str(tmp_path / "x.zip"))
    assert found[:4] == SHARED[:4] and found.texts == TEXTS
    assert {name: (x.dtype, x.tolist()) for name, x in found.arrays.items()} == {
        name: (x.dtype, x.tolist()) for name, x in ARRAYS.items()
    }
    os.symlink(tmp_path / "x.zip", tmp_path / "link.zip")
    assert read_shared(str(tmp_path / "link.zip")).name == "caught"


def test_equal_contents_give_equal_bytes_in_any_order():
    turned = SHARED._replace(texts=dict(reversed(TEXTS.items())), arrays=dict(reversed(ARRAYS.items())))
    assert pack(turned) == pack(SHARED)


def test_others_read_it_by_zip_and_numpy_alone(tmp_path):
    (tmp_path / "x.zip").write_bytes(data := pack(SHARED))
    with np.load(tmp_path / "x.zip", allow_pickle=False) as arrays:
        assert (arrays["policy/params/kernel"] == ARRAYS["policy/params/kernel"]).all()
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert archive.testzip() is None and archive.read("card.md") == b"# x"
        assert archive.comment.decode() == hashlib.sha256(data[:-64]).hexdigest()
        sums = json.loads(archive.read("manifest.json"))["sha256"]
        assert sums["card.md"] == hashlib.sha256(b"# x").hexdigest() and "policy/params/kernel.npy" in sums


@given(st.data())
def test_no_damage_is_missed(tmp_path_factory, data):
    path, whole = tmp_path_factory.getbasetemp() / "damaged.zip", pack(SHARED)
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda x: x != whole[at]))
    refusal(path, whole[:at] + bytes([byte]) + whole[at + 1 :])
    refusal(path, whole[:at])
    refusal(path, whole + whole[at:])


@pytest.mark.parametrize(
    "data, told",
    [
        (b"", "no file of launch.export"),
        (b"\x80\x04pickle", "no file of launch.export"),
        (zipped(TEXTS)[:-64], "damaged or cut off"),
        (zipped({"mimetype": b"x"}), "'mimetype'"),
        (zipped({**TEXTS, "../../x": b"x"}), "'../../x'"),
        (zipped({**TEXTS, "trained_with/../../x": b"x"}), "belongs to no policy"),
        (zipped({**TEXTS, "trained_with//x": b"x"}), "belongs to no policy"),
        (zipped({**TEXTS, "trained_with/a\\..\\x": b"x"}), "belongs to no policy"),
        (zipped({**TEXTS, "/etc/x": b"x"}), "belongs to no policy"),
        (zipped({**TEXTS, "trained_with/a\x1b[2Jb": b"x"}), "belongs to no policy"),
        (zipped({**TEXTS, f"policy/{'a' * 300}.npy": npy(np.zeros(1))}), "belongs to no policy"),
        (zipped({**TEXTS, "policy/a.txt": b"x"}), "belongs to no policy"),
        (
            zipped({**TEXTS, "policy/a.npy": npy(np.zeros(1 << 16))}, compression=zipfile.ZIP_DEFLATED),
            "more than its size",
        ),
        (zipped(TEXTS, compression=zipfile.ZIP_DEFLATED), "compressed or encrypted"),
        (zipped({**TEXTS, "card.md": bytes((1 << 24) + 1)}), "card.md is larger"),
        (zipped({"card.md": b""}), "answers.json is missing"),
        (zipped(TEXTS, {"format": "x"}), "names the format"),
        (zipped(TEXTS, {"version": 2}), "update oni_jax"),
        (zipped(TEXTS, {"version": True}), "version True"),
        (zipped(TEXTS, {"sha256": {}}), "damaged, missing or too much"),
        (zipped(TEXTS, {"sha256": [[[]]]}), "damaged, missing or too much"),
        (zipped(TEXTS, {"name": "../x"}), "no name of a run"),
        (zipped(TEXTS, {"licence": "a\nb"}), "'licence'"),
        (zipped(TEXTS, {"env_steps": -1}), "env_steps"),
        (zipped(TEXTS, {"env_steps": 1e400}), "env_steps"),
        (zipped({**TEXTS, "policy/a.npy": npy(np.array([{}]), True)}), "can be used"),
        (zipped({**TEXTS, "policy/a.npy": npy(np.zeros(3))[:-1]}), "not as large as it says"),
        (zipped({**TEXTS, "policy/a.npy": b"x"}), "can be used"),
        (
            zipped({**TEXTS, "policy/a.npy": npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1 << 60,)}")}),
            "can be used",
        ),
        (
            zipped(
                {**TEXTS, "policy/a.npy": npy_of(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 60},)}}")}
            ),
            "not as large as it says",
        ),
        (zipped({**TEXTS, "policy/a.npy": npy_of("{'descr': '<f4', 'shape': ((((")}), "can be used"),
        (zipped(TEXTS, {"sha256": json.loads("[" * 900 + "]" * 900)}), "too much"),
    ],
)
def test_hostile_files_are_refused_in_a_line(tmp_path, data, told):
    assert told in refusal(tmp_path / "x.zip", data)


def test_a_name_that_stands_twice_is_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("card.md", "a")
            archive.writestr("card.md", "b")
            archive.comment = b"0" * 64
    assert "holds a name twice" in refusal(tmp_path / "x.zip", summed(file.getvalue()))


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda path: path.mkdir(), "can't be read"),
        (os.mkfifo, "can't be read (it is no regular file)"),
        (lambda path: None, "there is no such file of launch.export"),
    ],
)
def test_a_path_without_a_file_is_a_line(tmp_path, make: Callable, told):
    make(tmp_path / "x.zip")
    with pytest.raises(UserError) as error:
        read_shared(find_shared(str(tmp_path / "x.zip")))
    assert told in str(error.value)


def test_names_of_runs_are_names_of_folders():
    assert run_name("../a b\n") == "_a_b_" and run_name(".") == "policy" and run_name("make_train-1") == "make_train-1"


def test_arrays_of_objects_can_not_be_shared():
    with pytest.raises(ValueError, match="[Oo]bject"):
        pack(SHARED._replace(arrays={"policy/x": np.array([{}])}))
    with pytest.raises(ValueError, match="belongs to no policy"):
        pack(SHARED._replace(texts={**TEXTS, "other.txt": b""}))
