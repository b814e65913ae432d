"""The inference server: a thread that computes actions for observations and fills trajectories.

It takes all groups that have finished their step, answers them in one batch, and dispatches them. A group whose
trajectory is complete continues in a free slot. While enough trajectories are pending for the learner no group is
answered: this bounds the policy lag, and the next actions come from newer parameters.
"""

import threading
from collections import deque
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.actors.pool import ActorPool
from oni_jax.buffers.exchange import TrajectoryExchange
from oni_jax.inference.parameters import ParameterStore
from oni_jax.inference.policy_step import Calls, CoreStates, bucket_sizes, make_policy_step_fn, make_value_step_fn
from oni_jax.networks.policy import ActorCritic
from oni_jax.ops.records import as_bytes
from oni_jax.runtime import WaitClock
from oni_jax.types import Array, PyTree

WAIT_SECS = 0.2


class InferenceServer:
    """Not thread-safe, but for `stop`: one thread calls it, the one that executes `run`, or in lockstep the learner's.

    Group g is served by device g mod L of the L inference devices; its core states stay there.
    """

    def __init__(
        self, policy: ActorCritic, exchange: TrajectoryExchange, pool: ActorPool, parameters: ParameterStore, key: Array
    ):
        ring, shape = exchange.ring, exchange.ring.shape
        self._exchange, self._ring, self._pool, self._parameters = exchange, ring, pool, parameters
        self._devices = parameters.devices
        states = CoreStates(
            policy.initial_state(shape.num_groups * shape.group_size),
            policy.initial_state(shape.num_slots * shape.group_size),
        )
        self._states = [jax.device_put(states, device) for device in self._devices]  # each with the rows of all groups
        self._gather = jax.jit(lambda states, rows: jax.tree.map(lambda table: table[rows], states))
        self.actor_wait = WaitClock()  # nothing to infer: waiting for the actors
        self.learner_wait = WaitClock()  # every group paused: waiting for the learner
        self._position = [(-1, 0)] * shape.num_groups  # (slot, row being written or written last)
        self._last_rows = np.zeros_like(ring.finals)  # [G, N] of paused groups
        self._last_texts = np.zeros_like(ring.texts, shape=ring.finals.shape)
        self._runnable: list[deque[int]] = [deque() for _ in self._devices]
        self._paused = deque(range(shape.num_groups))
        self._unstarted = set(self._paused)  # paused groups without environments: not started yet, or lost
        self._buckets = bucket_sizes(-(-shape.num_groups // len(self._devices)))
        self._keys, self.num_calls = [jax.device_put(key, device) for device in self._devices], 0
        self.num_acted_steps = 0
        step_args = (policy.apply, ring.spec, ring.records.dtype, shape.group_size)
        self._policy_step, self._value_step = make_policy_step_fn(*step_args), make_value_step_fn(*step_args)
        self._stopping = threading.Event()

    def warm_up(self) -> None:
        """Compiles all shapes that acting uses."""
        shape = self._ring.shape
        for size in self._buckets:
            padding = np.full(size, shape.num_groups, np.int32), np.full(size, shape.num_slots, np.int32)
            packed = np.zeros((size * shape.group_size, self._ring.records.dtype.itemsize), np.uint8)
            for index in range(len(self._devices)):
                jax.block_until_ready(self._infer(index, packed, Calls(*padding))[0])
        finals = np.zeros_like(self._ring.finals[0])
        for group in range(min(len(self._devices), shape.num_groups)):
            self._value(group, finals)

    def run(self) -> None:
        """Serves until `stop`. Raises ChildError when the actors' restarts are exhausted."""
        while not self._stopping.is_set():
            self.advance()

    def advance(self) -> None:
        """Resumes and answers groups, waits a while for replies, and processes them."""
        while self._paused and (slot := self._exchange.take_free()) is not None:
            self._resume(self._paused.popleft(), slot)
        while any(self._runnable) and not self._exchange.must_pause:
            self._act()
        all_paused = self.num_paused == self._ring.shape.num_groups
        with (self.learner_wait if all_paused else self.actor_wait).waiting():
            replies = self._pool.wait(WAIT_SECS)
        self._exchange.captions.add(replies.texts)
        for group in replies.done:
            self._receive(group)
        for group in replies.lost:
            self._restart(group)
        self._exchange.failures.extend(replies.failures)

    @property
    def num_paused(self) -> int:
        """Number of groups that wait for the learner."""
        return len(self._paused) + sum(map(len, self._runnable))

    def stop(self) -> None:
        self._stopping.set()
        self._pool.wake()

    def _device_index(self, group: int) -> int:
        """Returns the index of the device that serves a group."""
        return group % len(self._devices)

    def _receive(self, group: int) -> None:
        ring, (slot, t) = self._ring, self._position[group]
        row = ring.records[slot, t]
        truncated = row["truncated"]
        if t > 0:
            ended = truncated | row["terminated"]
            if ended.any():
                self._exchange.episodes.extend(ring.episode_stats[group][ended])
                for name, array in self._exchange.finals.items():
                    array[slot, t - 1, ended] = ring.finals[group][name][ended]
            if truncated.any():
                self._value_final_observations(group, slot, t, truncated)
        if t < ring.shape.rollout:
            self._runnable[self._device_index(group)].append(group)
            return
        # Copies: the slot may be another group's when this one resumes.
        self._last_rows[group], self._last_texts[group] = row, ring.texts[slot, t]
        self._exchange.put_full(slot)
        self._paused.append(group)

    def _restart(self, group: int) -> None:
        """Drops a lost group's partial trajectory, and starts new episodes in the same slot."""
        if group in self._paused:
            self._unstarted.add(group)
            return
        runnable = self._runnable[self._device_index(group)]
        if group in runnable:
            runnable.remove(group)
        self._position[group] = (self._position[group][0], 0)
        self._pool.dispatch(group, *self._position[group])

    def _value_final_observations(self, group: int, slot: int, t: int, truncated: np.ndarray) -> None:
        """Stores the bootstrap values of truncated steps: of the final observation, after the current core state."""
        values = np.asarray(self._value(group, self._ring.finals[group].copy()))
        self._exchange.policy_records[slot, t - 1]["truncation_value"] = np.where(truncated, values, 0.0)

    def _value(self, group: int, finals: np.ndarray) -> Array:
        index = self._device_index(group)
        params, states = self._parameters.newest.params[index], self._states[index]
        return self._value_step(params, states, as_bytes(finals), np.int32(group))

    def _resume(self, group: int, slot: int) -> None:
        """Continues in a new slot, whose row 0 is the last row of the old one, or the first of new episodes."""
        self._position[group] = (slot, 0)
        self._exchange.device_of_slot[slot] = self._device_index(group)
        if group in self._unstarted:
            self._unstarted.remove(group)
            self._pool.dispatch(group, *self._position[group])
            return
        self._ring.records[slot, 0], self._ring.texts[slot, 0] = self._last_rows[group], self._last_texts[group]
        self._runnable[self._device_index(group)].append(group)

    def _act(self) -> None:
        """Answers all runnable groups, on all devices at a time, and dispatches them."""
        runnable = [(index, groups) for index, groups in enumerate(self._runnable) if groups]
        in_flight = [self._start(index, groups) for index, groups in runnable]
        for groups, output, version in in_flight:
            self._answer(groups, np.asarray(output), version)

    def _start(self, index: int, runnable: deque[int]) -> tuple[list[int], Array, int]:
        """Starts inference on a device, padded to a bucket size."""
        ring, shape = self._ring, self._ring.shape
        groups = [runnable.popleft() for _ in range(min(len(runnable), self._buckets[-1]))]
        size = next(bucket for bucket in self._buckets if bucket >= len(groups))
        num_envs = shape.group_size
        records = np.zeros((size, num_envs), ring.records.dtype)
        calls = Calls(np.full(size, shape.num_groups, np.int32), np.full(size, shape.num_slots, np.int32))
        for i, group in enumerate(groups):
            slot, t = self._position[group]
            records[i] = ring.records[slot, t]
            calls.groups[i] = group
            if t == 0:
                calls.starting_slots[i] = slot
        self.num_calls += 1
        self.num_acted_steps += len(groups) * num_envs
        return groups, *self._infer(index, as_bytes(records).reshape(size * num_envs, -1), calls)

    def _answer(self, groups: list[int], output: np.ndarray, version: int) -> None:
        """Stores the policy's outputs for the groups, and dispatches them."""
        output = output.reshape(-1, self._ring.shape.group_size, output.shape[1])
        for i, group in enumerate(groups):
            slot, t = self._position[group]
            row = self._exchange.policy_records[slot, t]
            actions = output[i, :, 0].view(np.int32)
            row["action"], row["value"], row["logits"] = actions, output[i, :, 1], output[i, :, 2:]
            row["truncation_value"], row["version"] = 0.0, version
            self._ring.actions[group] = actions
            self._position[group] = (slot, t + 1)
            self._pool.dispatch(group, slot, t + 1)

    def _infer(self, index: int, packed: np.ndarray, calls: Calls) -> tuple[Array, int]:
        version, params = self._parameters.newest
        call, packed = np.uint32(self.num_calls % 2**32), jax.device_put(packed, self._devices[index])
        arguments = params[index], self._keys[index], call, packed, calls
        output, self._states[index] = self._policy_step(*self._states[index], *arguments)
        return output, version

    def initial_core_states(self, rows: np.ndarray, devices: np.ndarray) -> PyTree:
        """Returns trajectories' initial core states: leaves [B, ...], on the device if there is one, else on the host.

        rows: of the tables, [B]. devices: indices of their devices, [B].
        """
        found = [self._gather(states.initial, rows) for states in self._states]
        if len(found) == 1:
            return found[0]
        indices = devices, np.arange(len(devices))
        return jax.tree.map(lambda *tables: np.stack(tables)[indices], *jax.device_get(found))

    def save(self) -> dict[str, np.ndarray]:
        """Returns, while all groups are paused, the state that acting resumes from."""
        core = {f"core_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self._states))}
        counter = {"key": np.asarray(self._keys[0]), "num_calls": np.array(self.num_calls)}
        rows = {"last_rows": self._last_rows, "last_texts": self._last_texts}
        return {**core, **counter, **rows, "paused": np.array(self._paused)}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restores what `save` returned, before any group is served."""
        leaves, structure = jax.tree.flatten(self._states)
        restored = [jax.device_put(jnp.array(saved[f"core_{i}"]), leaf.sharding) for i, leaf in enumerate(leaves)]
        self._states = jax.tree.unflatten(structure, restored)
        self._keys = [jax.device_put(saved["key"], device) for device in self._devices]
        self.num_calls = int(saved["num_calls"])
        self._paused, self._unstarted = deque(saved["paused"].tolist()), set()
        self._last_rows[:], self._last_texts[:] = saved["last_rows"], saved["last_texts"]
