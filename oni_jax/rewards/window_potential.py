"""Potentials that the host looks up, once for each distinct window."""

from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.potentials.windows import Windows, make_windows, names_read
from oni_jax.rewards.base import Seen
from oni_jax.rewards.potential import PotentialScorer
from oni_jax.runtime import no_garbage_collection
from oni_jax.types import Array, CaptionBatch, PyTree

MAX_KNOWN = 1_000_000  # windows in the memo; beyond, it is cleared


class WindowPotential(PotentialScorer):
    """Values windows, each distinct one once. Subclasses implement `value`, and `cut` where they read less.

    Args:
        names: of the observations that windows hold.
        horizon: H, steps before the present one in a window.
        warmup_steps: see `PotentialScorer`.
    """

    def __init__(self, names: Sequence[str], horizon: int, warmup_steps: int):
        super().__init__(warmup_steps)
        self._names, self._horizon = names, horizon
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
            rows = sorted(new.values(), key=lambda i: (i % num_trajectories, i))
            with no_garbage_collection():
                found = self.value(windows, rows)
            self._known.update(zip((digests[i] for i in rows), found, strict=True))
            self._num_calls += len(rows)
        self._num_asked += len(digests)
        values = np.array([self._known[digest] for digest in digests], np.float32)
        return {"potential": values.reshape(captions.index.shape)}

    def phi(self, params: PyTree, seen: Seen, features: Mapping[str, Array]) -> Array:
        return features["potential"]

    def metrics(self) -> Mapping[str, Array]:
        return {
            "potential_calls": self._num_calls,
            "potential_memo_fraction": 1.0 - self._num_calls / max(1, self._num_asked),
        }
