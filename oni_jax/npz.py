"""NumPy's archives of arrays, in memory, and texts as an array of them."""

import io
from collections.abc import Iterable, Mapping

import numpy as np


def to_npz(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Arrays of any type and shape, of records, texts and no elements too, as one [n] uint8."""
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return np.frombuffer(file.getvalue(), np.uint8)


def from_npz(content: np.ndarray) -> dict[str, np.ndarray]:
    """The inverse of `to_npz`."""
    with np.load(io.BytesIO(np.asarray(content).tobytes()), allow_pickle=False) as arrays:
        return dict(arrays)


def join_texts(texts: Iterable[bytes]) -> np.ndarray:
    """Texts, none of which holds a zero, as one [n] uint8."""
    return np.frombuffer(b"\0".join(texts), np.uint8)


def split_texts(joined: np.ndarray) -> list[bytes]:
    """The inverse of `join_texts`; of nothing, one empty text."""
    return joined.tobytes().split(b"\0")
