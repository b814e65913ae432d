"""The memory through which trajectories travel from the actors to the learner.

A unit is one group of games in one actor process; it fills one slot at a time, row after row.
Row T of a slot is the observation after its last action, and again row 0 of the unit's next slot.
"""

from typing import NamedTuple

import numpy as np

from oni_jax.buffers.shared_array import SharedArray
from oni_jax.envs.base import TEXT_DTYPE, StepOutput, Texts, record_dtype
from oni_jax.types import EnvSpec

NOTE_BYTES = 200


class RingShape(NamedTuple):
    """How large the ring is. U units of N games, S slots of T steps."""

    num_units: int
    num_envs_per_unit: int
    num_slots: int
    rollout: int


class TrajectoryRing:
    """Shared arrays, written by actors and read by the inference server and the learner, or the other way round.

    Who may touch what is decided by the integers that travel beside it: a unit's rows belong to its actor
    between a command and its answer, and to the learner's process otherwise.
    """

    def __init__(self, spec: EnvSpec, shape: RingShape):
        self.spec, self.shape = spec, shape
        units, envs = shape.num_units, shape.num_envs_per_unit
        record = record_dtype(spec)
        self._arrays = {
            "records": SharedArray((shape.num_slots, shape.rollout + 1, envs), record),
            "texts": SharedArray((shape.num_slots, shape.rollout + 1, envs), TEXT_DTYPE),
            "actions": SharedArray((units, envs), np.int32),
            "finals": SharedArray((units, envs), record),
            "episode_stats": SharedArray((units, envs, len(spec.episode_stats)), np.float32),
            "busy_secs": SharedArray((units,), np.float64),  # time spent stepping so far
            "game_restarts": SharedArray((units,), np.int64),  # games that failed and were started anew
            "notes": SharedArray((units,), f"S{NOTE_BYTES}"),  # how the environments run, UTF-8
        }
        self._view()

    def _view(self) -> None:
        self.records = self._arrays["records"].array  # [S, T+1, N]
        self.texts = self._arrays["texts"].array  # [S, T+1, N] TEXT_DTYPE
        self.actions = self._arrays["actions"].array  # [U, N] int32
        self.finals = self._arrays["finals"].array  # [U, N]
        self.episode_stats = self._arrays["episode_stats"].array  # [U, N, K] float32
        self.busy_secs = self._arrays["busy_secs"].array  # [U] float64
        self.game_restarts = self._arrays["game_restarts"].array  # [U] int64
        self._notes = self._arrays["notes"].array

    def set_note(self, unit: int, note: str) -> None:
        """Leaves what an actor has to say to the log; see `VectorEnv.note`."""
        self._notes[unit] = note.encode()[:NOTE_BYTES]

    def notes(self) -> list[str]:
        """What there is to say, each text once."""
        return sorted({note.decode(errors="replace") for note in self._notes.tolist() if note})

    def __getstate__(self) -> dict:
        return {"spec": self.spec, "shape": self.shape, "_arrays": self._arrays}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._view()

    def step_output(self, unit: int, slot: int, t: int, texts: Texts) -> StepOutput:
        """Where `unit` writes the observation of row `t` of `slot`; its texts are the actor's own."""
        return StepOutput(self.records[slot, t], self.finals[unit], self.episode_stats[unit], texts)
