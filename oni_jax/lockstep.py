"""Acting on the learner's own thread, for games that this process steps: equal seeds then give equal runs.

Acting goes exactly as far as the batch that the learner waits for, with the parameters of the last update. Nothing is
left to timing, and between updates everything is at rest: a run that is resumed then goes on bit for bit as if it had
not been interrupted, where the games can be saved (`envs.base.SavableEnv`) and the labels come at the same updates.

With games in processes of their own that can't be had. Timing decides which games are answered together, and so which
random numbers draw their actions; which version of the parameters acts; which trajectories come first into a batch;
at which update a label arrives. Such a run keeps what it has learnt (parameters, Adam's moments, the reward's state and
data, labels, counters), and plays new games: those under way, and the trajectories that wait, are lost.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from oni_jax.actors.serial_pool import SerialPool
from oni_jax.buffers.exchange import TrajectoryExchange
from oni_jax.inference.server import InferenceServer
from oni_jax.learner.batches import BatchAssembler


class Part(Protocol):
    """Something that has a share in acting."""

    def save(self) -> Mapping[str, np.ndarray]: ...

    def restore(self, saved: Mapping[str, np.ndarray]) -> None: ...


class Lockstep:
    """Lets the learner's thread act whenever it finds no full slot; saves and restores what acting goes on from.

    Args:
        games: settings without which saved games are of no use, as one text.
        pool: started.
    """

    def __init__(
        self,
        games: str,
        pool: SerialPool,
        exchange: TrajectoryExchange,
        server: InferenceServer,
        assembler: BatchAssembler,
    ):
        self._games = games
        self._parts: dict[str, Part] = {"exchange": exchange, "server": server, "assembler": assembler}
        self._parts |= {f"unit_{unit}": group for unit, group in pool.groups.items()}
        exchange.act = server.advance

    def save(self) -> dict[str, np.ndarray]:
        """Between updates: copies of all that acting goes on from; nothing where the games can't be saved."""
        saved = {name: part.save() for name, part in self._parts.items()}
        if not all(saved.values()):
            return {}
        arrays = {f"{part}/{name}": np.array(array) for part, own in saved.items() for name, array in own.items()}
        return {"games": np.array(self._games), **arrays}

    def restore(self, saved: Mapping[str, np.ndarray]) -> bool:
        """The inverse of `save`, before anything is played. False: nothing was saved, or other games."""
        if str(saved.get("games")) != self._games:
            return False
        for name, part in self._parts.items():
            own = {key.removeprefix(f"{name}/"): x for key, x in saved.items() if key.startswith(f"{name}/")}
            part.restore(own)
        return True
