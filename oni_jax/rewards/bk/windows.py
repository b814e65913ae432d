"""Windows: the present observation, the H before it, and the actions between them; see `envs.history`."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.envs.history import ACTIONS, past_name


class Windows(NamedTuple):
    """R windows."""

    steps: Mapping[str, np.ndarray]  # [R, H+1, ...] each; the present one is the last
    actions: np.ndarray  # [R, H] int

    def without(self, past: bool, actions: bool) -> "Windows":
        """Returns windows without the past observations, or the actions."""
        steps = {name: x[:, -1:] for name, x in self.steps.items()} if past else self.steps
        return Windows(steps, self.actions[:, :0] if actions else self.actions)

    def digests(self) -> list[bytes]:
        """Returns a hash of each window's bytes: equal windows have equal ones."""
        return row_digests([*self.steps.values(), self.actions])

    def take(self, rows: Sequence[int]) -> "Windows":
        return Windows({name: x[rows] for name, x in self.steps.items()}, self.actions[rows])

    def distinct(self) -> tuple[Mapping[str, np.ndarray], list[list[int]]]:
        """Returns the distinct observations [N, ...], and for each window the numbers of its H+1, the oldest first."""
        index: dict[bytes, int] = {}
        numbers = [index.setdefault(row, len(index)) for row in row_bytes(list(self.steps.values()), 2)]
        first = np.unique(numbers, return_index=True)[1]  # a row of each
        made = {name: x.reshape(len(numbers), *x.shape[2:])[first] for name, x in self.steps.items()}
        return made, np.reshape(numbers, (len(self.actions), -1)).tolist()

    def apart(self) -> tuple[Mapping[str, np.ndarray], list[list[int]]]:
        """Returns what `distinct` does, with observations that no two windows share."""
        made = {name: x.reshape(-1, *x.shape[2:]) for name, x in self.steps.items()}
        numbers = np.arange(len(next(iter(made.values()))))
        return made, numbers.reshape(len(self.actions), -1).tolist()


def row_bytes(arrays: Sequence[np.ndarray], num_axes: int) -> list[bytes]:
    """Returns the bytes of arrays of equal leading axes, one text for each of their rows."""
    rows = math.prod(arrays[0].shape[:num_axes])
    flat = [np.ascontiguousarray(x).reshape(rows, -1).view(np.uint8) for x in arrays if x.size]
    joined = np.concatenate(flat, axis=1)
    content, size = joined.tobytes(), joined.shape[1]
    return [content[i : i + size] for i in range(0, len(content), size)]


def row_digests(arrays: Sequence[np.ndarray]) -> list[bytes]:
    """Returns a hash of the bytes of each row of arrays of one leading axis."""
    return [hashlib.blake2b(row, digest_size=16).digest() for row in row_bytes(arrays, 1)]


def names_read(names: Sequence[str], horizon: int) -> list[str]:
    """Returns the names of all observations that windows of these are made of."""
    return [*names, *(past_name(horizon, name) for name in names), past_name(horizon, ACTIONS)]


def make_windows(observations: Mapping[str, np.ndarray], names: Sequence[str], horizon: int) -> Windows:
    """Makes the windows of observations [T, B, ...], `names_read`: R = T B, by time and then by trajectory."""

    def rows(name: str) -> np.ndarray:
        x = observations[name]
        return x.reshape(-1, *x.shape[2:])

    steps = {name: np.concatenate([rows(past_name(horizon, name)), rows(name)[:, None]], axis=1) for name in names}
    return Windows(steps, rows(past_name(horizon, ACTIONS)))
