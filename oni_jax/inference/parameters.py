"""The newest parameters: published by the learner, read by whoever acts."""

from typing import NamedTuple

from oni_jax.types import PyTree


class Published(NamedTuple):
    version: int  # number of updates behind these parameters
    params: PyTree


class ParameterStore:
    """Holds one immutable snapshot; publishing swaps a reference, so no lock and no copy is needed."""

    def __init__(self, version: int, params: PyTree):
        self.newest = Published(version, params)

    def publish(self, version: int, params: PyTree) -> None:
        self.newest = Published(version, params)
