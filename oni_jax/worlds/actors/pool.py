"""The interface of actor pools, implemented in `serial_pool` and `process_pool`."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from oni_jax.host.runtime import num_cores
from oni_jax.settings.worlds import ActorConfig


def num_workers(actors: ActorConfig) -> int:
    """Returns the number of actor processes; 0 in the settings means one per core available to this process."""
    return actors.num_workers or num_cores()


def num_answerers(actors: ActorConfig) -> int:
    """Returns the number of threads that answer the actor processes; 0 in the settings means one."""
    return min(max(1, actors.num_answerers), num_workers(actors))


class Replies(NamedTuple):
    """Replies of groups since the last call."""

    done: Sequence[int] = ()  # groups that have finished their step
    texts: Sequence[tuple[int, bytes]] = ()  # new texts, each with its id
    lost: Sequence[int] = ()  # groups whose environments are lost; the next dispatch starts new ones, and writes row 0
    failures: Sequence[str] = ()  # reasons for the losses, one line each


class ActorPool(Protocol):
    """Steps groups on command. `dispatch` and `wait` are called by one thread, `wake` by any."""

    def start(self) -> None: ...

    def dispatch(self, group: int, slot: int, t: int) -> None:
        """Has the group take its actions from the ring and write row `t` of `slot`. The first call resets it."""
        ...

    def wait(self, timeout_secs: float) -> Replies:
        """Returns empty replies after the time-out or a `wake`. Raises ChildError when restarts are exhausted."""
        ...

    def wake(self) -> None:
        """Makes `wait` return."""
        ...

    def close(self) -> None: ...
