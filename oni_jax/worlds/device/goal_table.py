"""Goals suggested for captions, on their way to the device: collected on the host, replaced there as a whole."""

from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.envs.device.goals import GoalTable

GOAL_ARRAYS = ("goal_codes", "goal_worths", "num_goal_codes")  # names of those saved
MAX_SEEN = 200_000  # captions without goals; beyond, they are forgotten until they are seen again
_NO_CODE = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


class SuggestedGoals:
    """Goals suggested for captions, by the captions' codes.

    Args:
        num_worths: W, numbers kept of each: what the goals are worth, and how much else was suggested.
        size: codes kept; beyond, the oldest give way.
        is_exact: worths are 0 or 1; so they are kept in bytes, which are on the device sooner.
    """

    def __init__(self, num_worths: int, size: int, is_exact: bool = False):
        self._codes = np.full(1 << (size - 1).bit_length(), _NO_CODE)
        self._worths = np.zeros((len(self._codes), num_worths), np.uint8 if is_exact else np.float32)
        self._most = 255 if is_exact else np.inf
        self._num_added = 0
        self._rows: dict[int, int] = {}  # code -> row
        self._seen: dict[bytes, int] = {}  # captions without goals -> code
        self._is_new = True

    def see(self, captions: Sequence[bytes], codes: np.ndarray) -> None:
        """Takes in captions, and their codes [N] uint64."""
        if len(self._seen) > MAX_SEEN:
            self._seen.clear()
        self._seen.update((caption, code) for caption, code in zip(captions, codes.tolist()) if code not in self._rows)

    def add(self, worths: Mapping[bytes, np.ndarray]) -> None:
        """Takes in what the goals are worth [W] in states with these captions. Those not seen here are left out."""
        for caption, own in worths.items():
            code = self._seen.pop(caption, None)
            if code is not None and code not in self._rows:
                row = self._num_added % len(self._codes)
                self._rows.pop(int(self._codes[row]), None)
                self._codes[row], self._worths[row], self._rows[code] = code, np.minimum(own, self._most), row
                self._num_added += 1
                self._is_new = True

    def take(self) -> GoalTable | None:
        """Returns the table; None: it is what it was at the last call."""
        if not self._is_new:
            return None
        self._is_new = False
        order = np.argsort(self._codes, kind="stable")
        codes = self._codes[order]
        pairs = np.stack([codes >> np.uint64(32), codes & np.uint64(0xFFFF_FFFF)], axis=1).astype(np.uint32)
        return GoalTable(pairs, self._worths[order])  # type: ignore

    def save(self) -> dict[str, np.ndarray]:
        count = min(self._num_added, len(self._codes))
        if not count:
            return {}
        arrays = self._codes[:count].copy(), self._worths[:count].copy(), np.array(self._num_added)
        return dict(zip(GOAL_ARRAYS, arrays))

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        if "goal_codes" in saved:
            count = len(saved["goal_codes"])
            self._codes[:count], self._worths[:count] = saved["goal_codes"], saved["goal_worths"]
            self._num_added = int(saved["num_goal_codes"])
            self._rows = {code: row for row, code in enumerate(saved["goal_codes"].tolist())}
            self._is_new = True
