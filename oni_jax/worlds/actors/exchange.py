"""Queue of trajectories from acting to learning, inside the learner's process."""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from oni_jax.worlds.actors.captions import CaptionTable
from oni_jax.worlds.actors.ring import TrajectoryRing


def policy_record_dtype(num_actions: int) -> np.dtype:
    """Returns the dtype of one environment's row of policy outputs of one step."""
    return np.dtype(
        [
            ("action", "<i4"),
            ("value", "<f4"),
            ("logits", "<f4", (num_actions,)),
            ("truncation_value", "<f4"),  # the final observation's value where the step was truncated, else 0
            ("version", "<i4"),  # version of the parameters
        ],
        align=True,
    )


class TrajectoryExchange:
    """The ring's slots, and the policy's outputs for them. One thread or several act, one learns.

    A slot is free, being filled by a group, or full; the learner releases it once it has copied what it needs.

    Args:
        ring: holds the slots.
        max_waiting: complete trajectories that may be pending for an update, in slots or copied out of them, before
            acting has to pause.
        on_release: called when acting may be able to resume.
    """

    def __init__(self, ring: TrajectoryRing, max_waiting: int, on_release: Callable[[], None] = lambda: None):
        shape = ring.shape
        self.ring = ring
        self.policy_records = np.zeros(  # [S, T, N]
            (shape.num_slots, shape.rollout, shape.group_size), policy_record_dtype(ring.spec.num_actions)
        )
        self.finals = {  # [S, T, N, ...] each; the final observation's, where an episode ended
            name: np.zeros((*self.policy_records.shape, *ring.spec.observations[name].shape), ring.finals[name].dtype)
            for name in ring.spec.final_observations
        }
        self.device_of_slot = np.zeros(shape.num_slots, np.int32)  # index of the table of core states that it needs
        self.group_of_slot = np.zeros(shape.num_slots, np.int32)  # slot -> group that fills it
        self.captions = CaptionTable()
        self.episodes: deque[np.ndarray] = deque()  # [K] float32 each; statistics of ended episodes
        self.failures: deque[str] = deque()  # lines about actors that were replaced, one each
        self._on_release = on_release
        self._free = deque(range(shape.num_slots))
        self._full: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._max_waiting = max_waiting
        self._num_completed = 0  # trajectories; counted by the threads that act
        self._completing = threading.Lock()
        self._num_consumed = 0  # number consumed by the learner

    @property
    def _arrays(self) -> dict[str, np.ndarray]:
        """All arrays indexed by slot, [S, ...]."""
        finals = {f"final {name}": array for name, array in self.finals.items()}
        return {"records": self.ring.records, "texts": self.ring.texts, "policy_records": self.policy_records, **finals}

    @property
    def num_free(self) -> int:
        """Free slots."""
        return len(self._free)

    @property
    def num_full(self) -> int:
        """Full slots that wait for the learner."""
        return self._full.qsize()

    @property
    def must_pause(self) -> bool:
        """True while `max_waiting` trajectories or more are pending for an update."""
        return self._num_completed - self._num_consumed >= self._max_waiting

    def take_free(self) -> int | None:
        """Returns a slot to fill, or None while no slot is free."""
        with contextlib.suppress(IndexError):
            return self._free.popleft()
        return None

    def put_full(self, slot: int) -> None:
        with self._completing:
            self._num_completed += self.ring.shape.group_size
        self._full.put(slot)

    def consume(self, num_trajectories: int) -> None:
        """Counts trajectories as no longer pending: an update on them has begun, or they were dropped."""
        self._num_consumed += num_trajectories
        self._on_release()

    def get_full(self, timeout_secs: float) -> int | None:
        """Returns the oldest full slot, or None after the time-out."""
        try:
            return self._full.get(timeout=max(0.0, timeout_secs))
        except queue.Empty:
            return None

    def release(self, slot: int) -> None:
        self._free.append(slot)
        self._on_release()

    def save(self) -> dict[str, np.ndarray]:
        """Returns, while no slot is being filled, the slots that the learner has not released, and the captions."""
        full = [self._full.get() for _ in range(self._full.qsize())]
        for slot in full:
            self._full.put(slot)
        held = sorted(set(range(self.ring.shape.num_slots)).difference(self._free))
        slots = {"full": np.array(full, np.int32), "held": np.array(held, np.int32), "device": self.device_of_slot}
        slots["group"] = self.group_of_slot
        rows = {name: array[held] for name, array in self._arrays.items()}
        waiting = {"waiting": np.array(self._num_completed - self._num_consumed)}
        return {**slots, **rows, **waiting, **self.captions.save()}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restores what `save` returned, before any slot is taken or put."""
        held = saved["held"].tolist()
        for name, array in self._arrays.items():
            array[held] = saved[name]
        self.device_of_slot[:], self.group_of_slot[:] = saved["device"], saved["group"]
        self._free = deque(slot for slot in self._free if slot not in held)
        for slot in saved["full"].tolist():
            self._full.put(slot)
        self._num_completed, self._num_consumed = int(saved["waiting"]), 0
        self.captions.restore(saved)
