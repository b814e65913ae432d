"""Truncated steps that wait for their bootstrap values."""

import dataclasses

import numpy as np


@dataclasses.dataclass(eq=False)
class TruncatedSteps:
    """Truncated steps of a device's groups, the first `size` rows; their final observations are valued in one call."""

    packed: np.ndarray  # [N, R] uint8; final observations
    steps: np.ndarray  # [N, 5] int32; group, slot, t, environment, and calls that the group had before the step after
    size: int = 0

    @classmethod
    def empty(cls, packed: np.ndarray) -> "TruncatedSteps":
        return cls(packed, np.zeros((len(packed), 5), np.int32))

    def add(self, steps: np.ndarray, finals: np.ndarray) -> np.ndarray:
        """Adds steps [k, 5], and their rows of `finals` [G, N, R] uint8. Returns those for which there was no room."""
        added = steps[: len(self.packed) - self.size]
        end = self.size + len(added)
        self.steps[self.size : end] = added
        self.packed[self.size : end] = finals[added[:, 0], added[:, 3]]
        self.size = end
        return steps[len(added) :]

    def drop(self, group: int) -> None:
        """Removes the steps of a group."""
        (kept,) = np.nonzero(self.steps[: self.size, 0] != group)
        self.size = len(kept)
        self.steps[: self.size], self.packed[: self.size] = self.steps[kept], self.packed[kept]
