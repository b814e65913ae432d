"""What a pool of actors is: `serial_pool` and `process_pool` have one each."""

import os
from typing import Protocol

from oni_jax.config import ActorConfig


def num_workers(actors: ActorConfig) -> int:
    """Actor processes; 0 in the settings means one a core that this process may use."""
    return actors.num_workers or len(os.sched_getaffinity(0))


class ActorPool(Protocol):
    """Steps units on command. `dispatch` and `wait` are called by one thread, `wake` by any."""

    def start(self) -> None: ...

    def dispatch(self, unit: int, slot: int, t: int) -> None:
        """The unit's actions lie in the ring: step it and write row `t` of `slot`. The first starts its games."""
        ...

    def wait(self, timeout_secs: float) -> list[int]:
        """Units that have finished their step; empty after the time-out or a `wake`. Raises ChildError."""
        ...

    def wake(self) -> None:
        """Makes `wait` return."""
        ...

    def close(self) -> None: ...
