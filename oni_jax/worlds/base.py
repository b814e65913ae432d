"""The interface of worlds, which make trajectories; training does not depend on where they are made."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from oni_jax.envs.display import Terminal
from oni_jax.types import Array, EnvSpec, PyTree, StepCaptions, Trajectory


class Episodes(NamedTuple):
    """Beginnings and ends of episodes in B trajectories of T steps, on the host."""

    envs: np.ndarray  # [B] int32; indices of this process's environments. Of one, an earlier trajectory comes first
    is_first: np.ndarray  # [T, B] bool; the step is an episode's first
    ended: np.ndarray  # [T, B] bool; the episode ended with the step
    after_gap: np.ndarray  # [B] bool; the environment's trajectory before was dropped


class Collected(NamedTuple):
    """B trajectories of T steps."""

    payload: PyTree  # transferred to the device, or there already; only the world's `unpack` reads it
    captions: StepCaptions
    episodes: Episodes | None = None


class WorldReport(NamedTuple):
    """Events since the last report; each is reported once."""

    episodes: Sequence[np.ndarray] = ()  # [K] float32 each: statistics of ended episodes
    failures: Sequence[str] = ()  # reasons for replacing actors, one line each
    num_restarts: int = 0  # single environments that failed and were replaced
    notes: Sequence[str] = ()  # lines for the log on how the environments run


class World(Protocol):
    """Runs a policy in environments. Training calls it from one thread."""

    spec: EnvSpec
    unpack: Callable[[PyTree, Array], Trajectory]  # (payload, version of the update); pure, jitted with the update
    payload_sharding: PyTree  # sharding of a payload over the learner's devices; see `parallel`
    runs_ahead: bool  # True: collects in the background; False: only as far as `next` needs
    description: str  # text for the log
    num_envs: int = 0  # environments of this process; 0: not known

    def start(self) -> None:
        """Starts collecting, after compiling everything."""
        ...

    def publish(self, version: int, params: PyTree) -> None:
        """Acts with these parameters from now on. version: number of updates that made them."""
        ...

    def next(self, version: int, timeout_secs: float) -> Collected | None:
        """Returns the next batch, or None after the time-out. version: of the newest parameters.

        Raises:
            ChildError: restarts of lost environments are exhausted.
        """
        ...

    def suggest(self, worths: Mapping[bytes, np.ndarray]) -> None:
        """Takes in the worths of goals in states with these captions, for the next batches.

        Each [G + 1] float32, see `envs.device.goals.GoalTable`.
        """

    def suggest_by(self, goal_params: PyTree) -> None:
        """Suggests goals by a model with these parameters from now on, where the world has one; (): there is none."""

    def begin_update(self) -> None:
        """Counts the batch that `next` returned last as no longer pending: an update on it begins."""
        ...

    def report(self) -> WorldReport: ...

    def gauges(self) -> Mapping[str, float]:
        """Returns metrics: counts so far, queue sizes, fractions of the time since the last call."""
        ...

    def terminal(self) -> Terminal | None:
        """Returns a recent picture of one environment, and requests the next one, without waiting for it.

        For one thread, such as a view's. The object is the last call's where nothing came meanwhile; None: nothing has
        come yet, or the environment has no looks.
        """
        return None

    def save(self) -> Mapping[str, np.ndarray]:
        """Returns, between updates, copies of all state to resume from; {} where it can't be saved."""
        return {}

    def restore(self, saved: Mapping[str, np.ndarray]) -> bool:
        """Restores what `save` returned, before `start`. Returns False if it can't: new episodes begin."""
        return False

    def stop(self) -> None:
        """Stops collecting; `report` and `save` still work."""
        ...

    def close(self) -> None: ...


def with_finals(after: np.ndarray, finals: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """Returns observations after steps [T, B, ...]: final ones where an episode ended with the step, [T, B] bool."""
    return np.where(ended.reshape(*ended.shape, *[1] * (after.ndim - 2)), finals, after)
