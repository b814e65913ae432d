"""Truncated steps that wait for their bootstrap values."""

import dataclasses
from typing import NamedTuple

import numpy as np


class TruncatedStep(NamedTuple):
    """A truncated step: row `t` of its slot."""

    slot: int
    t: int
    num_calls: int  # calls that the group had before the step after it


@dataclasses.dataclass(eq=False)
class TruncatedSteps:
    """Truncated steps of a device's groups; their final observations are valued in one call."""

    packed: np.ndarray  # [N, R] uint8; final observations, in the first rows
    steps: dict[tuple[int, int], TruncatedStep] = dataclasses.field(default_factory=dict)  # key: (group, environment)

    @property
    def is_full(self) -> bool:
        return len(self.steps) == len(self.packed)

    def add(self, group: int, env: int, step: TruncatedStep, final: np.ndarray) -> None:
        """Adds a step of an environment that has none, and the row [R] of its final observation; not when full."""
        self.packed[len(self.steps)] = final
        self.steps[group, env] = step

    def drop(self, group: int) -> None:
        rows = [row for row, (step_group, _) in enumerate(self.steps) if step_group != group]
        self.packed[: len(rows)] = self.packed[rows]
        self.steps = {where: step for where, step in self.steps.items() if where[0] != group}
