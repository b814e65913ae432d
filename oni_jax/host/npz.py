"""NumPy's archives of arrays, and lists of texts, each as one array of bytes."""

import contextlib
import io
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from oni_jax.host.files import open_regular

_MAGIC = b"PK\3\4"
_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Header(NamedTuple):
    """Shape and type of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@contextlib.contextmanager
def open_npz(
    path: str | os.PathLike, follows_links: bool = False
) -> Iterator[tuple[Mapping[str, np.ndarray], Mapping[str, Header]]]:
    """Opens an untrusted file of arrays, which are unpacked one by one, as they are asked for.

    Yields:
        The arrays, and their headers, which say how large they will be.

    Raises:
        OSError, ValueError, zipfile.BadZipFile: it is damaged, or no such file.
    """
    with open_regular(path, follows_links) as raw:
        if raw.peek(len(_MAGIC))[: len(_MAGIC)] != _MAGIC:  # NumPy would take it for an array, or a pickle
            raise ValueError("it is no .npz")
        with np.load(raw, allow_pickle=False) as file:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in file.zip.infolist()}
            yield file, {name: _header(file.zip, entry) for name, entry in entries.items()}


def _header(file: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Header:
    with file.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in _READ_HEADER:
            raise ValueError(f"{entry.filename} is of an unknown version")
        shape, _, dtype = _READ_HEADER[version](stream)
        header = Header(shape, dtype)
        if dtype.hasobject or header.num_bytes != entry.file_size - stream.tell():
            raise ValueError(f"{entry.filename} is not as large as it says")
    return header


def to_npy(array: np.ndarray) -> bytes:
    """Returns the .npy file of an array. Raises ValueError: it holds Python's objects."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array.copy("C"), allow_pickle=False)
    return file.getvalue()


def from_npy(name: str, content: bytes) -> np.ndarray:
    """Inverts `to_npy`, of an untrusted file; `name` is for errors. Raises ValueError: it is no such file."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version not in _READ_HEADER:
        raise ValueError(f"{name} is of an unknown version")
    shape, is_fortran, dtype = _READ_HEADER[version](stream)
    num_bytes = len(content) - stream.tell()
    if dtype.hasobject or is_fortran or min(shape, default=0) < 0 or Header(shape, dtype).num_bytes != num_bytes:
        raise ValueError(f"{name} is not as large as it says")
    return np.ndarray(shape, dtype, content, stream.tell())


def to_npz(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Packs arrays of any type and shape, also of records, of texts and empty, into one [n] uint8."""
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return np.frombuffer(file.getvalue(), np.uint8)


def from_npz(content: np.ndarray) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(np.asarray(content).tobytes()), allow_pickle=False) as arrays:
        return dict(arrays)


def join_texts(texts: Iterable[bytes]) -> np.ndarray:
    """Joins texts without zero bytes into one [n] uint8."""
    return np.frombuffer(b"\0".join(texts), np.uint8)


def split_texts(joined: np.ndarray) -> list[bytes]:
    """Inverts `join_texts`; an empty array gives one empty text."""
    return joined.tobytes().split(b"\0")
