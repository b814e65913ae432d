"""Shared memory in which the actors write trajectories for the learner.

A group of environments, all in one actor process, fills one slot at a time, row after row.
Row T of a slot is the observation after its last action, and is repeated as row 0 of the group's next slot.
"""

from typing import NamedTuple

import numpy as np

from oni_jax.envs.base import TEXT_DTYPE, StepOutput, Texts, record_dtype
from oni_jax.types import EnvSpec
from oni_jax.worlds.actors.shared_array import SharedArray
from oni_jax.worlds.actors.shared_terminal import SharedTerminal

NOTE_BYTES = 200


class RingShape(NamedTuple):
    """Size of the ring: G groups of N environments, S slots of T steps."""

    num_groups: int
    group_size: int
    num_slots: int
    rollout: int


class TrajectoryRing:
    """Shared arrays, written by actors and read by the inference server and the learner, or vice versa.

    There is no lock: a group's rows belong to its actor between a command and its reply, and to the learner's process
    otherwise.
    """

    def __init__(self, spec: EnvSpec, shape: RingShape):
        self.spec, self.shape = spec, shape
        groups, envs = shape.num_groups, shape.group_size
        record = record_dtype(spec)
        self._arrays = {
            "records": SharedArray((shape.num_slots, shape.rollout + 1, envs), record),
            "texts": SharedArray((shape.num_slots, shape.rollout + 1, envs), TEXT_DTYPE),
            "actions": SharedArray((groups, envs), np.int32),
            "finals": SharedArray((groups, envs), record),
            "episode_stats": SharedArray((groups, envs, len(spec.episode_stats)), np.float32),
            "busy_secs": SharedArray((groups,), np.float64),  # time spent stepping so far
            "env_restarts": SharedArray((groups,), np.int64),  # environments that failed and were replaced
            "notes": SharedArray((groups,), f"S{NOTE_BYTES}"),  # lines on how the environments run, UTF-8
        }
        self.terminal = SharedTerminal()  # terminal of the first environment of all
        self._view()

    def _view(self) -> None:
        self.records = self._arrays["records"].array  # [S, T+1, N]
        self.texts = self._arrays["texts"].array  # [S, T+1, N] TEXT_DTYPE
        self.actions = self._arrays["actions"].array  # [G, N] int32
        self.finals = self._arrays["finals"].array  # [G, N]
        self.episode_stats = self._arrays["episode_stats"].array  # [G, N, K] float32
        self.busy_secs = self._arrays["busy_secs"].array  # [G] float64
        self.env_restarts = self._arrays["env_restarts"].array  # [G] int64
        self._notes = self._arrays["notes"].array

    def set_note(self, group: int, note: str) -> None:
        """Stores an actor's note for the log; see `VectorEnv.note`."""
        self._notes[group] = note.encode()[:NOTE_BYTES]

    def notes(self) -> list[str]:
        """Returns the unique notes, sorted."""
        return sorted({note.decode(errors="replace") for note in self._notes.tolist() if note})

    def __getstate__(self) -> dict:
        return {"spec": self.spec, "shape": self.shape, "_arrays": self._arrays, "terminal": self.terminal}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._view()

    def step_output(self, group: int, slot: int, t: int, texts: Texts) -> StepOutput:
        """Returns the buffers of `group` for row `t` of `slot`; its texts are the actor's alone."""
        return StepOutput(self.records[slot, t], self.finals[group], self.episode_stats[group], texts)
