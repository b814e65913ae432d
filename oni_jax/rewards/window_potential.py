"""Potentials that the host looks up, once for each distinct window."""

import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.config import UserError
from oni_jax.potentials.windows import Windows, make_windows, names_read
from oni_jax.rewards.base import Seen
from oni_jax.rewards.potential import PotentialScorer
from oni_jax.runtime import no_garbage_collection
from oni_jax.types import Array, CaptionBatch, PyTree

MAX_KNOWN = 1_000_000  # windows in the memo; beyond, it is cleared
RETRY_SECS = 30.0


class WindowPotential(PotentialScorer):
    """Values windows, each distinct one once. Subclasses implement `value`, and `cut` where they read less.

    Args:
        names: of the observations that windows hold.
        horizon: H, steps before the present one in a window.
        warmup_steps: see `PotentialScorer`.
        in_background: a server is asked: windows are valued in a thread, and are worth 0 until then. While it is busy,
            or its server is away, new windows are passed over; they are valued when they are seen again.
    """

    def __init__(self, names: Sequence[str], horizon: int, warmup_steps: int, in_background: bool = False):
        super().__init__(warmup_steps)
        self._names, self._horizon, self._in_background = names, horizon, in_background
        self._thread: threading.Thread | None = None
        self.other_observations = names_read(names, horizon)
        self._known: dict[bytes, float] = {}
        self._num_asked = self._num_calls = 0

    def value(self, windows: Windows, rows: Sequence[int]) -> Sequence[float]:
        """Returns the potentials of these windows."""
        raise NotImplementedError

    def cut(self, windows: Windows) -> Windows:
        """Returns windows without what is not read: those that then are equal are one."""
        return windows

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        windows = self.cut(make_windows(captions.observations, self._names, self._horizon))
        digests = windows.digests()
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        new = {digest: i for i, digest in enumerate(digests) if digest not in self._known}
        if new:
            # One trajectory after the other: windows that follow one another share observations.
            num_trajectories = captions.index.shape[1]
            rows = {digests[i]: i for i in sorted(new.values(), key=lambda i: (i % num_trajectories, i))}
            if not self._in_background:
                with no_garbage_collection():
                    self._add(windows, rows)
            elif not (self._thread and self._thread.is_alive()):
                self._thread = threading.Thread(target=self._add_later, args=(windows, rows), daemon=True)
                self._thread.start()
        self._num_asked += len(digests)
        values = np.array([self._known.get(digest, 0.0) for digest in digests], np.float32)
        return {"potential": values.reshape(captions.index.shape)}

    def _add(self, windows: Windows, rows: Mapping[bytes, int]) -> None:
        """Values windows, given as digest -> row."""
        found = self.value(windows, list(rows.values()))
        self._known.update(zip(rows, found, strict=True))
        self._num_calls += len(rows)

    def _add_later(self, windows: Windows, rows: Mapping[bytes, int]) -> None:
        try:
            self._add(windows, rows)
        except UserError as error:
            print(f"warning: {error}; new states have the potential 0, and are tried again", flush=True)
            time.sleep(RETRY_SECS)

    def phi(self, params: PyTree, seen: Seen, features: Mapping[str, Array]) -> Array:
        return features["potential"]

    def metrics(self) -> Mapping[str, Array]:
        return {
            "potential_calls": self._num_calls,
            "potential_memo_fraction": 1.0 - self._num_calls / max(1, self._num_asked),
        }
