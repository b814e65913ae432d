"""A NumPy array in memory shared by several processes.

The memory is anonymous: `spawn` passes its file descriptor to the child, so nothing can be left in /dev/shm however
the processes end.
"""

import math
import mmap
import os
import tempfile
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike


class SharedArray:
    """`array` is a writable view [*shape] of zero-initialised shared memory; picklable while a child is spawned."""

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike):
        self._shape, self._dtype = shape, np.dtype(dtype)
        self._fd = _anonymous_file()
        os.ftruncate(self._fd, max(1, math.prod(shape) * self._dtype.itemsize))
        self._map()

    array: np.ndarray

    def _map(self) -> None:
        memory = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        self.array = np.ndarray(self._shape, self._dtype, memory)

    def __getstate__(self) -> dict[str, Any]:
        return {"shape": self._shape, "dtype": self._dtype, "fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._shape, self._dtype, self._fd = state["shape"], state["dtype"], state["fd"].detach()
        self._map()

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)  # the mapping holds another reference to the memory


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("oni_jax")
    with tempfile.TemporaryFile() as file:  # unlinked from the start
        return os.dup(file.fileno())
