"""The newest parameters: published by the learner, read by whoever acts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from oni_jax.types import PyTree


class Published(NamedTuple):
    version: int  # number of updates behind these parameters
    params: Sequence[PyTree]  # the same on each of the devices that act


class ParameterStore:
    """Holds one immutable snapshot; publishing swaps a reference, so no lock is needed.

    Args:
        devices: that act; None is wherever the parameters are.
    """

    def __init__(self, version: int, params: PyTree, devices: Sequence[Any] = (None,)):
        self.devices = tuple(devices)
        self.publish(version, params)

    def publish(self, version: int, params: PyTree) -> None:
        """Copies them to devices where they are not."""
        self.newest = Published(version, [jax.device_put(params, device) for device in self.devices])
