"""Acting in lockstep with the learner, on its thread and in its process: equal seeds give equal runs.

Acting goes exactly as far as the batch that the learner waits for, with the parameters of the last update. Nothing
depends on timing, and between updates nothing is in flight: a resumed run continues bit for bit as if uninterrupted,
if its environments can be saved (`VectorEnv.save`) and labels arrive at the same updates.

With actor processes this is impossible. Timing decides which groups are answered together, and so which random numbers
draw their actions; which version of the parameters acts; which trajectories enter a batch first; at which update a
label arrives. A resumed run then has what was learnt (parameters, Adam's moments, the reward's state and data, labels,
counters), but new episodes: running ones and pending trajectories are lost.
"""

from collections.abc import Mapping
from typing import Protocol, cast

import numpy as np

from oni_jax.envs.base import TEXT_DTYPE
from oni_jax.settings.config import Config
from oni_jax.types import EnvSpec
from oni_jax.worlds.actors.actor_world import Acting, ActorWorld
from oni_jax.worlds.actors.group import MakeEnv
from oni_jax.worlds.actors.serial_pool import SerialPool
from oni_jax.worlds.base import Collected


class Savable(Protocol):
    """A component with state that acting resumes from."""

    def save(self) -> Mapping[str, np.ndarray]: ...

    def restore(self, saved: Mapping[str, np.ndarray]) -> None: ...


class LockstepWorld(ActorWorld):
    """An `ActorWorld` with a serial pool, run on the caller's thread. See the module."""

    runs_ahead = False

    def __init__(self, config: Config, spec: EnvSpec, make_env: MakeEnv, acting: Acting):
        super().__init__(config, spec, make_env, acting)
        (self._server,), (self._pool,) = self._servers, self._pools
        shape = self._exchange.ring.shape
        # Saved environments can be restored only where this is equal.
        records = self._exchange.ring.records.dtype, self._exchange.policy_records.dtype
        core = [
            x.shape for name, x in self._server.save().items() if name.startswith("core_")
        ]  # shapes of a guide's state, too
        self._signature = f"{config.env} {shape} {len(acting.devices)} {TEXT_DTYPE.names} {records} {core}"

    def start(self) -> None:
        self._server.warm_up()

    def next(self, version: int, timeout_secs: float) -> Collected | None:
        while (batch := self._assembler.next(version, 0.0)) is None:
            self._server.advance()
            self._server.settle()
        return batch

    def save(self) -> dict[str, np.ndarray]:
        saved = {name: part.save() for name, part in self._savable().items()}
        if not all(saved.values()):  # some environments can't be saved
            return {}
        arrays = {
            f"{part}/{name}": np.array(array)
            for part, part_arrays in saved.items()
            for name, array in part_arrays.items()
        }
        return {"games": np.array(self._signature), **arrays}

    def restore(self, saved: Mapping[str, np.ndarray]) -> bool:
        if str(saved.get("games")) != self._signature or "exchange/group" not in saved:  # an earlier version's
            return False
        for name, part in self._savable().items():
            arrays = {key.removeprefix(f"{name}/"): x for key, x in saved.items() if key.startswith(f"{name}/")}
            part.restore(arrays)
        return True

    def _savable(self) -> dict[str, Savable]:
        groups = {f"unit_{index}": group for index, group in cast(SerialPool, self._pool).groups.items()}
        return {"exchange": self._exchange, "server": self._server, "assembler": self._assembler, **groups}
