"""NumPy's archives of arrays, and lists of texts, each as one array of bytes."""

import io
from collections.abc import Iterable, Mapping

import numpy as np


def to_npz(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Packs arrays of any type and shape, also of records, of texts and empty, into one [n] uint8."""
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return np.frombuffer(file.getvalue(), np.uint8)


def from_npz(content: np.ndarray) -> dict[str, np.ndarray]:
    """Inverts `to_npz`."""
    with np.load(io.BytesIO(np.asarray(content).tobytes()), allow_pickle=False) as arrays:
        return dict(arrays)


def join_texts(texts: Iterable[bytes]) -> np.ndarray:
    """Joins texts without zero bytes into one [n] uint8."""
    return np.frombuffer(b"\0".join(texts), np.uint8)


def split_texts(joined: np.ndarray) -> list[bytes]:
    """Inverts `join_texts`; an empty array gives one empty text."""
    return joined.tobytes().split(b"\0")
