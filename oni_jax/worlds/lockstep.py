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
from typing import Protocol, cast

import numpy as np

from oni_jax.actors.group import MakeEnv
from oni_jax.actors.serial_pool import SerialPool
from oni_jax.config import Config
from oni_jax.envs.base import TEXT_DTYPE
from oni_jax.types import EnvSpec
from oni_jax.worlds.actor_world import Acting, ActorWorld
from oni_jax.worlds.base import Collected


class Part(Protocol):
    """Something that acting goes on from."""

    def save(self) -> Mapping[str, np.ndarray]: ...

    def restore(self, saved: Mapping[str, np.ndarray]) -> None: ...


class LockstepWorld(ActorWorld):
    """The pool is a serial one."""

    runs_ahead = False

    def __init__(self, config: Config, spec: EnvSpec, make_env: MakeEnv, acting: Acting):
        super().__init__(config, spec, make_env, acting)
        shape = self._exchange.ring.shape
        # Without the same of these, saved games are of no use.
        self._games = f"{config.env} {shape} {len(acting.devices)} {TEXT_DTYPE.names}"

    def start(self) -> None:
        self._server.warm_up()

    def next(self, version: int, timeout_secs: float) -> Collected | None:
        del timeout_secs
        while (batch := self._assembler.next(version, 0.0)) is None:
            self._server.advance()
        return batch

    def save(self) -> dict[str, np.ndarray]:
        saved = {name: part.save() for name, part in self._savable().items()}
        if not all(saved.values()):  # there are games that can't be
            return {}
        arrays = {f"{part}/{name}": np.array(array) for part, own in saved.items() for name, array in own.items()}
        return {"games": np.array(self._games), **arrays}

    def restore(self, saved: Mapping[str, np.ndarray]) -> bool:
        if str(saved.get("games")) != self._games:
            return False
        for name, part in self._savable().items():
            own = {key.removeprefix(f"{name}/"): x for key, x in saved.items() if key.startswith(f"{name}/")}
            part.restore(own)
        return True

    def _savable(self) -> dict[str, Part]:
        groups = {f"unit_{index}": group for index, group in cast(SerialPool, self._pool).groups.items()}
        return {"exchange": self._exchange, "server": self._server, "assembler": self._assembler, **groups}
