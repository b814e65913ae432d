"""Assembles batches of trajectories from full slots of the ring, and unpacks them on the device."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import numpy as np

from oni_jax.ops.captions import unique_in_order
from oni_jax.ops.episode_sums import episode_ends
from oni_jax.ops.records import as_bytes, unpack_records
from oni_jax.parallel import AXIS_0, AXIS_1
from oni_jax.settings.learning import LearnerConfig
from oni_jax.types import Array, CaptionBatch, EnvSpec, PyTree, StepCaptions, Trajectory
from oni_jax.worlds.actors.captions import CaptionTable
from oni_jax.worlds.actors.exchange import TrajectoryExchange
from oni_jax.worlds.base import Collected, Episodes, with_finals


class ActorPayload(NamedTuple):
    """A batch as it is transferred to the device."""

    records: Array  # [T+1, B, R] uint8
    policy_records: Array  # [T, B, P] uint8
    final_observations: Mapping[str, Array]  # see Trajectory
    initial_core_state: PyTree  # leaves [B, ...], on the inference device, or on the host if there are several


PAYLOAD_SHARDING = ActorPayload(AXIS_1, AXIS_1, AXIS_1, AXIS_0)  # type: ignore

# (rows of the tables of initial core states [B], indices of the tables [B]) -> leaves [B, ...]
ReadCoreStates = Callable[[np.ndarray, np.ndarray], PyTree]


class BatchAssembler:
    """Copies trajectories out of full slots, B at a time. A slot is released with the batch that takes its last one.

    Args:
        exchange: holds the slots.
        learner: batch size, and the lag at which trajectories are stale.
        read_core_states: returns the core states before each trajectory.
    """

    def __init__(self, exchange: TrajectoryExchange, learner: LearnerConfig, read_core_states: ReadCoreStates):
        self._exchange, self._ring, self._read_core_states = exchange, exchange.ring, read_core_states
        self._num_envs = exchange.ring.shape.group_size
        self._num_trajectories = learner.batch_size // exchange.ring.shape.rollout
        self._max_policy_lag = learner.max_policy_lag
        self._slot, self._column = -1, self._num_envs  # position of the next trajectory; the slot is used up
        self._has_gap = np.zeros(exchange.ring.shape.num_groups, bool)  # groups whose last trajectories were dropped
        self._after_gap = False  # True if the open slot follows a gap
        self._start_batch()

    def _start_batch(self) -> None:
        steps, size = self._ring.shape.rollout, self._num_trajectories
        # New buffers each time: the device may still read or alias those of the last batch.
        self._records = np.empty((steps + 1, size), self._ring.records.dtype)
        self._texts = np.empty((steps + 1, size), self._ring.texts.dtype)
        self._policy_records = np.empty((steps, size), self._exchange.policy_records.dtype)
        finals = self._exchange.finals.items()
        self._finals = {name: np.empty((steps, size, *x.shape[3:]), x.dtype) for name, x in finals}
        self._start_rows, self._device_indices = np.zeros((2, size), np.int32)  # row, and index of the table
        self._envs, self._gaps = np.zeros(size, np.int32), np.zeros(size, bool)  # see `Episodes`
        self._copied_slots: list[int] = []
        self._filled = 0

    def next(self, version: int, timeout_secs: float) -> Collected | None:
        """Returns the next B trajectories, or None after the time-out; the next call continues a partial batch."""
        deadline = time.monotonic() + timeout_secs
        while self._filled < self._num_trajectories:
            if self._column == self._num_envs and not self._next_slot(version, deadline - time.monotonic()):
                return None
            if self._column < self._num_envs:
                self._copy_trajectories()
        core_state = self._read_core_states(self._start_rows, self._device_indices)
        payload = ActorPayload(as_bytes(self._records), as_bytes(self._policy_records), self._finals, core_state)
        batch = Collected(payload, self._captions(), self._episodes())
        for slot in self._copied_slots:
            self._exchange.release(slot)
        self._start_batch()
        return batch

    def begin_update(self) -> None:
        """Marks the batch that `next` returned as no longer pending, so that acting may continue."""
        self._exchange.consume(self._num_trajectories)

    def save(self) -> dict[str, np.ndarray]:
        """Returns, between batches, the position in the open slot."""
        return {"place": np.array([self._slot, self._column, self._after_gap]), "gaps": self._has_gap.copy()}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self._slot, self._column, self._after_gap = saved["place"].tolist()
        self._has_gap[:] = saved["gaps"]

    def _next_slot(self, version: int, timeout_secs: float) -> bool:
        """Opens the oldest full slot, or drops it if stale. Returns False after the time-out."""
        slot = self._exchange.get_full(timeout_secs)
        if slot is None:
            return False
        group = self._exchange.group_of_slot[slot]
        newest_sample = int(self._exchange.policy_records[slot, -1, 0]["version"])
        if version - newest_sample >= self._max_policy_lag:
            self._has_gap[group] = True
            self._exchange.release(slot)
            self._exchange.consume(self._num_envs)
        else:
            self._slot, self._column, self._after_gap = slot, 0, self._has_gap[group]
            self._has_gap[group] = False
        return True

    def _copy_trajectories(self) -> None:
        count = min(self._num_envs - self._column, self._num_trajectories - self._filled)
        there = slice(self._column, self._column + count)
        here = slice(self._filled, self._filled + count)
        self._records[:, here] = self._ring.records[self._slot, :, there]
        self._texts[:, here] = self._ring.texts[self._slot, :, there]
        self._policy_records[:, here] = self._exchange.policy_records[self._slot, :, there]
        for name, array in self._finals.items():
            array[:, here] = self._exchange.finals[name][self._slot, :, there]
        columns = np.arange(there.start, there.stop)
        self._start_rows[here] = self._slot * self._num_envs + columns
        self._envs[here] = self._exchange.group_of_slot[self._slot] * self._num_envs + columns
        self._gaps[here] = self._after_gap
        self._device_indices[here] = self._exchange.device_of_slot[self._slot]
        self._filled += count
        self._column += count
        if self._column == self._num_envs:
            self._copied_slots.append(self._slot)

    def _captions(self) -> StepCaptions:
        names, known = self._ring.spec.observations, self._exchange.captions
        return step_captions(self._records, self._texts, self._finals, names, known)

    def _episodes(self) -> Episodes:
        return Episodes(self._envs, self._records["is_first"][:-1], episode_ends(self._records), self._gaps)


def step_captions(
    records: np.ndarray,
    texts: np.ndarray,
    finals: Mapping[str, np.ndarray],
    names: Collection[str],
    captions: CaptionTable,
) -> StepCaptions:
    """Returns the captions of B trajectories of T steps, with the observations `names`.

    Args:
        records: [T+1, B].
        texts: [T+1, B] TEXT_DTYPE.
        finals: see `Trajectory.final_observations`.
        names: names of observations.
        captions: holds the texts.
    """
    before, after = ({name: rows[name] for name in names} for rows in (records[:-1], records[1:]))
    after |= {name: with_finals(after[name], x, episode_ends(records)) for name, x in finals.items()}
    captions_before, caused = (
        _caption_batch(x, captions) for x in (texts["caption"][:-1], texts["outcome_caption"][1:])
    )
    return StepCaptions(captions_before._replace(observations=before), caused._replace(observations=after))


def _caption_batch(ids: np.ndarray, captions: CaptionTable) -> CaptionBatch:
    unique, index = unique_in_order(ids)
    return CaptionBatch([captions[text_id] for text_id in unique.tolist()], index)


def make_unpack_fn(
    spec: EnvSpec, record: np.dtype, policy_record: np.dtype
) -> Callable[[ActorPayload, Array], Trajectory]:
    """Returns unpack(payload, version) -> Trajectory; see `World`."""
    step_names = ["is_first", "reward", "terminated", "truncated", "caption_count", "outcome_caption_count"]

    def unpack(payload: ActorPayload, version: Array) -> Trajectory:
        fields = unpack_records(payload.records, record, [*spec.observations, *step_names])
        acted = unpack_records(payload.policy_records, policy_record, policy_record.names or ())
        return Trajectory(
            observations={name: fields[name] for name in spec.observations},
            is_first=fields["is_first"],
            before_counts=fields["caption_count"][:-1],
            caused_counts=fields["outcome_caption_count"][1:],
            actions=acted["action"],
            rewards=fields["reward"][1:],
            terminations=fields["terminated"][1:],
            truncations=fields["truncated"][1:],
            truncation_values=acted["truncation_value"],
            final_observations=payload.final_observations,
            behaviour_logits=acted["logits"],
            values=acted["value"],
            policy_lags=version - acted["version"],
            initial_core_state=payload.initial_core_state,
        )

    return unpack
