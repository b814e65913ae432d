"""What a pool of actors is: `serial_pool` and `process_pool` have one each."""

import os
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from oni_jax.config import ActorConfig


def num_workers(actors: ActorConfig) -> int:
    """Actor processes; 0 in the settings means one a core that this process may use."""
    return actors.num_workers or len(os.sched_getaffinity(0))


class Answers(NamedTuple):
    """What came back from the groups since the last look."""

    done: Sequence[int] = ()  # groups that have finished their step
    texts: Sequence[tuple[int, bytes]] = ()  # that they met for the first time, with their numbers
    lost: Sequence[int] = ()  # groups whose games are gone; their next step, which starts new ones, writes a row 0
    failures: Sequence[str] = ()  # why they are lost, one line each


class ActorPool(Protocol):
    """Steps groups on command. `dispatch` and `wait` are called by one thread, `wake` by any."""

    def start(self) -> None: ...

    def dispatch(self, group: int, slot: int, t: int) -> None:
        """The group's actions lie in the ring: step it and write row `t` of `slot`. The first starts its games."""
        ...

    def wait(self, timeout_secs: float) -> Answers:
        """Empty after the time-out or a `wake`. Raises ChildError when the games can't be kept running."""
        ...

    def wake(self) -> None:
        """Makes `wait` return."""
        ...

    def close(self) -> None: ...
