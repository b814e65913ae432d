"""What makes trajectories, as training sees it: it never asks where they were made."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from oni_jax.types import Array, CaptionBatch, EnvSpec, PyTree, StepCaptions, Trajectory


class Collected(NamedTuple):
    """B trajectories of T steps."""

    payload: PyTree  # what crosses to the device, or is there already; only the world's `unpack` looks inside
    captions: StepCaptions
    events: CaptionBatch | None = None  # what the actions did, where the environment says it


class WorldReport(NamedTuple):
    """What happened since the last report; each value is given once."""

    episodes: Sequence[np.ndarray] = ()  # [K] float32 each: statistics of those that ended
    failures: Sequence[str] = ()  # of actors that were replaced, one line each
    num_restarts: int = 0  # single environments that failed and were started anew
    notes: Sequence[str] = ()  # how the environments run, for the log


class World(Protocol):
    """Plays a policy in environments. Training calls it from one thread."""

    spec: EnvSpec
    unpack: Callable[[PyTree, Array], Trajectory]  # (payload, version of the update); pure, jitted with the update
    payload_sharding: PyTree  # how a payload lies on the devices that learn; see `parallel`
    runs_ahead: bool  # whether it collects while nobody asks; else only as far as `next` needs
    description: str  # for the log

    def start(self) -> None:
        """Begins to play, once everything is compiled."""
        ...

    def publish(self, version: int, params: PyTree) -> None:
        """Plays with these parameters from now on; version: the number of updates behind them."""
        ...

    def next(self, version: int, timeout_secs: float) -> Collected | None:
        """The next batch, or None when the time-out passes first. version: of the newest parameters.

        Raises:
            ChildError: the environments can't be kept running.
        """
        ...

    def begin_update(self) -> None:
        """An update on the batch that `next` gave last begins: it waits no longer."""
        ...

    def report(self) -> WorldReport: ...

    def gauges(self) -> Mapping[str, float]:
        """For a row of metrics: counts so far, sizes of queues, fractions of the time since the last call."""
        ...

    def save(self) -> Mapping[str, np.ndarray]:
        """Between updates: copies of all that playing goes on from; nothing where it can't be saved."""
        return {}

    def restore(self, saved: Mapping[str, np.ndarray]) -> bool:
        """The inverse of `save`, before `start`. False: there is nothing to go on from, and new episodes begin."""
        return False

    def stop(self) -> None:
        """Plays no further; reports and saves still work."""
        ...

    def close(self) -> None: ...
