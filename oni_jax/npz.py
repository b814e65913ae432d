"""NumPy's archives of arrays, in memory."""

import io
from collections.abc import Mapping

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
