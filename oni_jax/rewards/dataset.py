"""Data set of a reward model: rows of fixed size, in the devices' memory and, for checkpoints, in the host's."""

import math
from collections.abc import Mapping

import numpy as np

from oni_jax.host.memory import check_fits
from oni_jax.parallel import Replicas
from oni_jax.settings.fields import counted
from oni_jax.types import ArraySpec, PyTree

BLOCK_SIZE = 256  # rows copied to the devices at a time: one shape, so that it is compiled once

Rows = Mapping[str, np.ndarray]


class DataSet:
    """A ring buffer of `capacity` rows; new ones replace the oldest. Replicated on the devices.

    Args:
        columns: shape and type of one row's arrays.
        capacity: C.
        replicas: the devices.
    """

    def __init__(self, columns: Mapping[str, ArraySpec], capacity: int, replicas: Replicas):
        self._columns, self._capacity = columns, capacity
        row_bytes = sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in columns.values())
        check_fits({f"a data set of {counted(capacity, 'row')}": capacity * row_bytes}, "lower --reward_dataset_size")
        self._host = {name: np.zeros((capacity, *spec.shape), spec.dtype) for name, spec in columns.items()}
        self._replicas = replicas
        self._device: PyTree = None  # allocated at first use
        self._write = replicas.updater(_write_rows)
        self.num_appended = 0
        self._num_uploaded = 0

    @property
    def size(self) -> int:
        """Number of rows held."""
        return min(self.num_appended, self._capacity)

    def append(self, rows: Rows) -> None:
        """Appends rows, each column [N, ...], N at most the capacity."""
        count = len(next(iter(rows.values())))
        slots = (self.num_appended + np.arange(count)) % self._capacity
        for name, column in self._host.items():
            column[slots] = rows[name]
        self.num_appended += count

    def on_devices(self) -> PyTree:
        """Returns the columns [C, ...], replicated on the devices, with all rows appended so far."""
        if self._device is None:
            columns = self._columns.items()
            self._device = {name: self._replicas.zeros((self._capacity, *x.shape), x.dtype) for name, x in columns}
        start = max(self._num_uploaded, self.num_appended - self._capacity)
        for first in range(start, self.num_appended, BLOCK_SIZE):
            numbers = np.arange(first, first + BLOCK_SIZE)
            slots = numbers % self._capacity
            block = {name: column[slots] for name, column in self._host.items()}
            slots[numbers >= self.num_appended] = self._capacity  # out of bounds: dropped
            self._device = self._write(self._device, (block, slots.astype(np.int32)))
        self._num_uploaded = self.num_appended
        return self._device

    def save(self) -> dict[str, np.ndarray]:
        """Returns the rows held, the oldest first, for a checkpoint."""
        slots = np.arange(self.num_appended - self.size, self.num_appended) % self._capacity
        return {name: column[slots] for name, column in self._host.items()}

    def restore(self, saved: Rows) -> None:
        """Restores the rows of `save` into an empty data set; a smaller one keeps the newest."""
        self.append({name: saved[name][-self._capacity :] for name in self._columns})


def _write_rows(columns: PyTree, rows: PyTree) -> PyTree:
    block, slots = rows
    return {name: column.at[slots].set(block[name], mode="drop") for name, column in columns.items()}
