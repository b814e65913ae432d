"""Truncated steps that wait for their bootstrap values."""

import dataclasses
from typing import NamedTuple

import numpy as np


class TruncatedStep(NamedTuple):
    """A truncated step: row `t` of its slot."""

    group: int
    slot: int
    t: int
    env: int
    num_calls: int  # that the group had before the step after it


@dataclasses.dataclass(eq=False)
class TruncatedSteps:
    """Truncated steps of a device's groups; their final observations are valued in one call."""

    packed: np.ndarray  # [N, R] uint8; final observations, in the first rows
    steps: list[TruncatedStep] = dataclasses.field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.steps) == len(self.packed)

    def add(self, step: TruncatedStep, final: np.ndarray) -> None:
        """Adds a step and the row [R] of its final observation; not when full."""
        self.packed[len(self.steps)] = final
        self.steps.append(step)

    def drop(self, group: int) -> None:
        """Removes the steps of a group."""
        kept = [i for i, step in enumerate(self.steps) if step.group != group]
        self.steps, self.packed[: len(kept)] = [self.steps[i] for i in kept], self.packed[kept]
