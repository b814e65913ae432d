"""Goals suggested for captions: collected on the host, and sent to the device as they come."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from oni_jax.envs.device.goals import GoalTable, rows_of

GOAL_ARRAYS = ("goal_codes", "goal_worths")  # names of the saved arrays
MAX_SEEN = 200_000  # captions without goals; beyond, they are forgotten until they are seen again
NUM_NEW = 1024  # rows that follow at a time; more replace the table
MIN_ROWS = 1024
MAX_MOVES = 64  # most moves of codes to their other row, to make room for one
_NO_CODE = 0xFFFF_FFFF_FFFF_FFFF


class NewRows(NamedTuple):
    """Rows that have changed; those beyond are out of the table."""

    rows: np.ndarray  # [NUM_NEW] int32
    table: GoalTable  # contents, [NUM_NEW, ...]


class SuggestedGoals:
    """Goals suggested for captions, by the captions' codes.

    Each code lies in one of two rows; one that finds both taken moves another to its other row.

    Args:
        num_worths: W, numbers kept of each: what the goals are worth, and how much else was suggested.
        size: codes kept; beyond, the oldest give way.
        is_exact: worths are 0 or 1; so they are kept in bytes, which are on the device sooner.
    """

    def __init__(self, num_worths: int, size: int, is_exact: bool = False):
        self._size = size
        num_rows = max(MIN_ROWS, 1 << (4 * size - 1).bit_length())  # most are empty, so that a code finds room
        self._codes = np.full(num_rows, _NO_CODE, np.uint64)
        self._worths = np.zeros((num_rows, num_worths), np.uint8 if is_exact else np.float32)
        self._most = 255 if is_exact else np.inf
        self._rows: dict[int, int] = {}  # code -> row, the oldest first
        self._seen: dict[bytes, int] = {}  # captions without goals -> code
        self._changed: set[int] = set()  # rows

    def see(self, captions: Sequence[bytes], codes: np.ndarray) -> None:
        """Takes in captions, and their codes [N] uint64."""
        if len(self._seen) > MAX_SEEN:
            self._seen.clear()
        self._seen.update((caption, code) for caption, code in zip(captions, codes.tolist()) if code not in self._rows)

    def add(self, worths: Mapping[bytes, np.ndarray]) -> None:
        """Takes in the worths [W] of goals in states with these captions. Captions not seen here are left out."""
        for caption, worth in worths.items():
            code = self._seen.pop(caption, None)
            if code is not None and code not in self._rows:
                self._put(code, np.minimum(worth, self._most))

    def _put(self, code: int, worths: np.ndarray) -> None:
        if len(self._rows) == self._size:
            self._write(self._rows.pop(next(iter(self._rows))), _NO_CODE, 0)
        row = None
        for _ in range(MAX_MOVES):
            first, second = rows_of(_halves(np.array(code, np.uint64)), len(self._codes)).tolist()
            row = (
                first
                if self._codes[first] == _NO_CODE or (self._codes[second] != _NO_CODE and row != first)
                else second
            )
            moved, its_worths = int(self._codes[row]), self._worths[row].copy()
            self._write(row, code, worths)
            self._rows[code] = row
            if moved == _NO_CODE:
                return
            code, worths = moved, its_worths
        del self._rows[code]  # until it is seen again

    def _write(self, row: int, code: int, worths: np.ndarray | int) -> None:
        self._codes[row], self._worths[row] = code, worths
        self._changed.add(row)

    def table(self) -> GoalTable:
        self._changed.clear()
        return GoalTable(_halves(self._codes), self._worths)  # type: ignore

    def new_rows(self) -> NewRows | None:
        """Returns the rows changed since the last call of this or of the table; None: too many."""
        if len(self._changed) > NUM_NEW:
            return None
        rows = np.full(NUM_NEW, len(self._codes), np.int32)
        rows[: len(self._changed)] = sorted(self._changed)
        self._changed.clear()
        held = _halves(self._codes.take(rows, mode="clip")), self._worths.take(rows, 0, mode="clip")
        return NewRows(rows, GoalTable(*held))  # type: ignore

    def save(self) -> dict[str, np.ndarray]:
        if not self._rows:
            return {}
        rows = [*self._rows.values()]
        return dict(zip(GOAL_ARRAYS, (self._codes[rows], self._worths[rows])))

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        if "goal_codes" in saved:
            for code, worths in zip(saved["goal_codes"].tolist(), saved["goal_worths"]):
                self._put(code, worths)


def with_new_rows(table: GoalTable, new: NewRows) -> GoalTable:
    """Returns the table on the device with the rows that have changed."""
    return jax.tree.map(lambda x, rows: x.at[new.rows].set(rows, mode="drop"), table, new.table)


def _halves(codes: np.ndarray) -> np.ndarray:
    """Returns codes [...] uint64 as [..., 2] uint32, the upper half first."""
    return np.stack([codes >> np.uint64(32), codes & np.uint64(0xFFFF_FFFF)], axis=-1).astype(np.uint32)
