"""Potentials that the host looks up, once for each distinct window."""

import time
from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.host.memory import no_garbage_collection
from oni_jax.host.reporting import report
from oni_jax.ops.bounds import bounded
from oni_jax.rewards.base import Seen
from oni_jax.rewards.bk.potential import PotentialScorer
from oni_jax.rewards.bk.windows import Windows, make_windows, names_read
from oni_jax.settings.fields import UserError
from oni_jax.types import Array, CaptionBatch, PyTree

MAX_KNOWN = 1_000_000  # windows in the memo; beyond, it is cleared
RETRY_SECS = 30.0


class WindowPotential(PotentialScorer):
    """Values windows, each distinct one once. Subclasses implement `value`, and `cut` where they read less.

    Args:
        names: names of the observations that windows hold.
        horizon: H, steps before the present one in a window.
        warmup_steps: see `PotentialScorer`.
        of_server: a server is asked. When it goes away, training goes on: new windows are worth 0, and are asked about
            when they are seen again, RETRY_SECS later.
    """

    def __init__(self, names: Sequence[str], horizon: int, warmup_steps: int, of_server: bool = False):
        super().__init__(warmup_steps)
        self._names, self._horizon, self._of_server = names, horizon, of_server
        self._away_until = 0.0  # a time of time.monotonic
        self.other_observations = names_read(names, horizon)
        self._known: dict[bytes, float] = {}
        self._num_asked = self._num_calls = 0

    def value(self, windows: Windows, rows: Sequence[int]) -> Sequence[float]:
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
        if new and time.monotonic() >= self._away_until:
            # One trajectory after the other: windows that follow one another share observations.
            num_trajectories = captions.index.shape[1]
            rows = {digests[i]: i for i in sorted(new.values(), key=lambda i: (i % num_trajectories, i))}
            try:
                with no_garbage_collection():
                    found = self.value(windows, list(rows.values()))
            except UserError as error:
                if not (self._of_server and self._num_calls):  # one that has never answered is not there
                    raise
                self._away_until = time.monotonic() + RETRY_SECS
                report(f"warning: {error}; until it is back, states that are new have the potential 0")
            else:
                self._known.update(zip(rows, found, strict=True))
                self._num_calls += len(rows)
        self._num_asked += len(digests)
        values = bounded([self._known.get(digest, 0.0) for digest in digests])
        return {"potential": values.reshape(captions.index.shape)}

    def phi(self, params: PyTree, seen: Seen, features: Mapping[str, Array]) -> Array:
        return features["potential"]

    def metrics(self) -> Mapping[str, Array]:
        return {
            "potential_calls": self._num_calls,
            "potential_memo_fraction": 1.0 - self._num_calls / max(1, self._num_asked),
        }
