"""From full slots of the ring to batches of trajectories on the device."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from oni_jax.buffers.exchange import TrajectoryExchange
from oni_jax.ops.records import as_bytes, unpack_records
from oni_jax.types import Array, CaptionBatch, EnvSpec, PyTree, Trajectory


class PackedBatch(NamedTuple):
    """A batch as it crosses to the device."""

    records: Array  # [T+1, B, R] uint8
    policy_records: Array  # [T, B, P] uint8
    captions: Array  # [T, B] int32
    features: Mapping[str, Array]  # the reward's look-ups
    initial_core_state: PyTree  # leaves [B, ...]


class HostBatch(NamedTuple):
    """A batch as it was copied out of the ring."""

    records: np.ndarray  # [T+1, B] record_dtype
    policy_records: np.ndarray  # [T, B] policy_record_dtype
    captions: CaptionBatch
    initial_core_state: PyTree  # leaves [B, ...], on the device that acted, or on the host where several did


class BatchAssembler:
    """Copies trajectories out of full slots, B at a time. A batch's slots are given back when it is complete."""

    def __init__(self, exchange: TrajectoryExchange, batch_size: int, max_policy_lag: int, intrinsic_at: str):
        self._exchange, self._ring = exchange, exchange.ring
        self._num_envs = exchange.ring.shape.num_envs_per_unit
        self._num_trajectories = batch_size // exchange.ring.shape.rollout
        self._max_policy_lag = max_policy_lag
        self._intrinsic_at = intrinsic_at
        self._slot, self._column = -1, self._num_envs  # where the next trajectory lies; none left
        self._gather = jax.jit(lambda states, rows: jax.tree.map(lambda table: table[rows], states))
        self.num_dropped = 0  # trajectories too old to learn from
        self._start_batch()

    def _start_batch(self) -> None:
        steps, size = self._ring.shape.rollout, self._num_trajectories
        # New memory each time: the device may still be reading, or sharing, that of the last batch.
        self._records = np.empty((steps + 1, size), self._ring.records.dtype)
        self._policy_records = np.empty((steps, size), self._exchange.policy_records.dtype)
        self._start_rows, self._acted_on = np.zeros((2, size), np.int32)  # in which device's table
        self._copied_slots: list[int] = []
        self._filled = 0

    def next(self, version: int, timeout_secs: float) -> HostBatch | None:
        """The next B trajectories, or None when the time-out passes first (what there is stays for the next call)."""
        deadline = time.monotonic() + timeout_secs
        while self._filled < self._num_trajectories:
            if self._column == self._num_envs and not self._next_slot(version, deadline - time.monotonic()):
                return None
            if self._column < self._num_envs:
                self._copy_trajectories()
        batch = HostBatch(self._records, self._policy_records, self._captions(), self._initial_core_state())
        for slot in self._copied_slots:
            self._exchange.release(slot)
        self._start_batch()
        return batch

    def begin_update(self) -> None:
        """An update on the batch that `next` gave begins: it waits no longer, and acting may go on."""
        self._exchange.consume(self._num_trajectories)

    def save(self) -> dict[str, np.ndarray]:
        """Between batches: how much is read of the slot that is open."""
        return {"place": np.array([self._slot, self._column])}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self._slot, self._column = saved["place"].tolist()

    def _next_slot(self, version: int, timeout_secs: float) -> bool:
        """Opens the oldest full slot, unless it is too old to learn from. False: there was none in time."""
        slot = self._exchange.get_full(timeout_secs)
        if slot is None:
            return False
        newest_sample = int(self._exchange.policy_records[slot, -1, 0]["version"])
        if version - newest_sample >= self._max_policy_lag:
            self.num_dropped += self._num_envs
            self._exchange.release(slot)
            self._exchange.consume(self._num_envs)
        else:
            self._slot, self._column = slot, 0
        return True

    def _copy_trajectories(self) -> None:
        count = min(self._num_envs - self._column, self._num_trajectories - self._filled)
        there = slice(self._column, self._column + count)
        here = slice(self._filled, self._filled + count)
        self._records[:, here] = self._ring.records[self._slot, :, there]
        self._policy_records[:, here] = self._exchange.policy_records[self._slot, :, there]
        self._start_rows[here] = self._slot * self._num_envs + np.arange(there.start, there.stop)
        self._acted_on[here] = self._exchange.device_of_slot[self._slot]
        self._filled += count
        self._column += count
        if self._column == self._num_envs:
            self._copied_slots.append(self._slot)

    def _initial_core_state(self) -> PyTree:
        found = [self._gather(states, self._start_rows) for states in self._exchange.initial_core_states]
        if len(found) == 1:
            return found[0]
        places = self._acted_on, np.arange(len(self._acted_on))
        return jax.tree.map(lambda *tables: np.stack(tables)[places], *jax.device_get(found))

    def _captions(self) -> CaptionBatch:
        if self._intrinsic_at == "obs":
            records = self._records[:-1]
            ids = records["caption_id"]
        else:  # where an episode ended, the caption is the final observation's, and the observation the new episode's
            records = self._records[1:]
            ids = records["outcome_caption_id"]
        distinct, index = number_in_order(ids)
        messages = [self._exchange.captions[caption_id] for caption_id in distinct.tolist()]
        observations = {name: records[name] for name in self._ring.spec.observations}
        return CaptionBatch(messages, index, observations)


def number_in_order(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ones of the ids [T, B], those that come later in time behind; and which of them each is, int32."""
    distinct, first, index = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[index].reshape(ids.shape).astype(np.int32)


def pack(batch: HostBatch, features: Mapping[str, np.ndarray]) -> PackedBatch:
    """A batch in the form in which it crosses to the devices."""
    return PackedBatch(
        as_bytes(batch.records),
        as_bytes(batch.policy_records),
        batch.captions.index,
        dict(features),
        batch.initial_core_state,
    )


def make_unpack_fn(
    spec: EnvSpec, record: np.dtype, policy_record: np.dtype, intrinsic_at: str
) -> Callable[[PackedBatch, Array], Trajectory]:
    """unpack(PackedBatch, version) -> Trajectory; pure, to be jitted with the update of version [] int32."""
    step_names = ["is_first", "reward", "terminated", "truncated", "caption_count", "outcome_caption_count"]

    def unpack(batch: PackedBatch, version: Array) -> Trajectory:
        fields = unpack_records(batch.records, record, [*spec.observations, *step_names])
        acted = unpack_records(batch.policy_records, policy_record, policy_record.names or ())
        own, caused = fields["caption_count"][:-1], fields["outcome_caption_count"][1:]
        return Trajectory(
            observations={name: fields[name] for name in spec.observations},
            is_first=fields["is_first"],
            captions=batch.captions,
            caption_counts=own if intrinsic_at == "obs" else caused,
            actions=acted["action"],
            rewards=fields["reward"][1:],
            terminations=fields["terminated"][1:],
            truncations=fields["truncated"][1:],
            truncation_values=acted["truncation_value"],
            behaviour_logits=acted["logits"],
            values=acted["value"],
            policy_lags=version - acted["version"],
            initial_core_state=batch.initial_core_state,
        )

    return unpack
