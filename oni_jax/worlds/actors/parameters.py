"""The newest parameters: published by the learner, read by the inference server."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from oni_jax.types import PyTree


class Published(NamedTuple):
    version: int  # number of updates that made these parameters
    params: Sequence[PyTree]  # replicated: one copy on each inference device


class ParameterStore:
    """Holds one immutable snapshot; publishing swaps a reference, so no lock is needed.

    Args:
        devices: inference devices; None stands for where the parameters are.
    """

    def __init__(self, version: int, params: PyTree, devices: Sequence[Any] = (None,)):
        self.devices = tuple(devices)
        self.publish(version, params)

    def publish(self, version: int, params: PyTree) -> None:
        """Puts the parameters on each device."""
        self.newest = Published(version, [jax.device_put(params, device) for device in self.devices])
