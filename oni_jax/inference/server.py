"""The inference server: a thread that turns observations into actions and fills trajectories.

It takes whatever groups have finished their step, answers them in one batch, and sends them on. A group whose
trajectory is complete continues in a free slot. While enough trajectories wait for the learner no group is answered:
that bounds the policy lag, and what is then acted is acted by newer parameters.
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
    """One thread may call anything here but `stop`: that whose body is `run`, or, in lockstep, the learner's.

    Group g is served by device g mod L of the L that have the parameters; its memory stays there.
    """

    def __init__(
        self,
        policy: ActorCritic,
        exchange: TrajectoryExchange,
        pool: ActorPool,
        parameters: ParameterStore,
        key: Array,
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
        self.actor_wait = WaitClock()  # nothing to infer: waiting for the games
        self.learner_wait = WaitClock()  # every group paused: waiting for the learner
        self._position = [(-1, 0)] * shape.num_groups  # (slot, row that lies there or is being written)
        self._last_rows = np.zeros_like(ring.finals)  # [G, N]; of paused groups
        self._last_texts = np.zeros_like(ring.texts, shape=ring.finals.shape)
        self._runnable: list[deque[int]] = [deque() for _ in self._devices]
        self._paused = deque(range(shape.num_groups))
        self._unstarted = set(self._paused)  # paused groups that have no games yet, or no longer
        self._buckets = bucket_sizes(-(-shape.num_groups // len(self._devices)))
        self._keys, self.num_calls = [jax.device_put(key, device) for device in self._devices], 0
        self.num_acted_steps = 0
        step_args = (policy.apply, ring.spec, ring.records.dtype, shape.group_size)
        self._policy_step, self._value_step = make_policy_step_fn(*step_args), make_value_step_fn(*step_args)
        self._stopping = threading.Event()

    def warm_up(self) -> None:
        """Compiles every shape that acting will use."""
        shape = self._ring.shape
        for size in self._buckets:
            padding = np.full(size, shape.num_groups, np.int32), np.full(size, shape.num_slots, np.int32)
            packed = np.zeros((size * shape.group_size, self._ring.records.dtype.itemsize), np.uint8)
            for place in range(len(self._devices)):
                jax.block_until_ready(self._infer(place, packed, Calls(*padding))[0])
        finals = np.zeros_like(self._ring.finals[0])
        for group in range(min(len(self._devices), shape.num_groups)):
            self._value(group, finals)

    def run(self) -> None:
        """Serves until `stop`. Raises ChildError when the games can't be kept running."""
        while not self._stopping.is_set():
            self.advance()

    def advance(self) -> None:
        """Answers the groups that can go on, waits a while, and takes in what came of the games' steps."""
        while self._paused and (slot := self._exchange.take_free()) is not None:
            self._resume(self._paused.popleft(), slot)
        while any(self._runnable) and not self._exchange.must_pause:
            self._act()
        everyone_paused = self.num_paused == self._ring.shape.num_groups
        with (self.learner_wait if everyone_paused else self.actor_wait).waiting():
            answers = self._pool.wait(WAIT_SECS)
        self._exchange.captions.add(answers.texts)
        for group in answers.done:
            self._receive(group)
        for group in answers.lost:
            self._void(group)
        self._exchange.failures.extend(answers.failures)

    @property
    def num_paused(self) -> int:
        """Groups that wait for the learner."""
        return len(self._paused) + sum(map(len, self._runnable))

    def stop(self) -> None:
        self._stopping.set()
        self._pool.wake()

    def _place(self, group: int) -> int:
        """Which of the devices serves it."""
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
            self._runnable[self._place(group)].append(group)
            return
        # The slot may be another group's when this one resumes.
        self._last_rows[group], self._last_texts[group] = row, ring.texts[slot, t]
        self._exchange.put_full(slot)
        self._paused.append(group)

    def _void(self, group: int) -> None:
        """The group's games are gone, and with them what it has of a trajectory: new ones begin in the same slot."""
        if group in self._paused:
            self._unstarted.add(group)
            return
        runnable = self._runnable[self._place(group)]
        if group in runnable:
            runnable.remove(group)
        self._position[group] = (self._position[group][0], 0)
        self._pool.dispatch(group, *self._position[group])

    def _value_final_observations(self, group: int, slot: int, t: int, truncated: np.ndarray) -> None:
        """A step that was cut off bootstraps from its final observation, seen with the memory that led to it."""
        values = np.asarray(self._value(group, self._ring.finals[group].copy()))
        self._exchange.policy_records[slot, t - 1]["truncation_value"] = np.where(truncated, values, 0.0)

    def _value(self, group: int, finals: np.ndarray) -> Array:
        place = self._place(group)
        params, states = self._parameters.newest.params[place], self._states[place]
        return self._value_step(params, states, as_bytes(finals), np.int32(group))

    def _resume(self, group: int, slot: int) -> None:
        """Goes on in a new slot, whose row 0 is the last row of the old one, or the first of new games."""
        self._position[group] = (slot, 0)
        self._exchange.device_of_slot[slot] = self._place(group)
        if group in self._unstarted:
            self._unstarted.remove(group)
            self._pool.dispatch(group, *self._position[group])
            return
        self._ring.records[slot, 0], self._ring.texts[slot, 0] = self._last_rows[group], self._last_texts[group]
        self._runnable[self._place(group)].append(group)

    def _act(self) -> None:
        """Infers for as many runnable groups as there are, on all devices at a time, and dispatches them."""
        runnable = [(place, groups) for place, groups in enumerate(self._runnable) if groups]
        started = [self._start(place, groups) for place, groups in runnable]
        for groups, output, version in started:
            self._answer(groups, np.asarray(output), version)

    def _start(self, place: int, runnable: deque[int]) -> tuple[list[int], Array, int]:
        """Begins inference on a device, padded to a compiled size."""
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
        return groups, *self._infer(place, as_bytes(records).reshape(size * num_envs, -1), calls)

    def _answer(self, groups: list[int], output: np.ndarray, version: int) -> None:
        """Notes down what the policy says of the groups, and has them stepped."""
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

    def _infer(self, place: int, packed: np.ndarray, calls: Calls) -> tuple[Array, int]:
        version, params = self._parameters.newest
        call, packed = np.uint32(self.num_calls % 2**32), jax.device_put(packed, self._devices[place])
        arguments = params[place], self._keys[place], call, packed, calls
        output, self._states[place] = self._policy_step(*self._states[place], *arguments)
        return output, version

    def initial_core_states(self, rows: np.ndarray, devices: np.ndarray) -> PyTree:
        """The core's memory before trajectories [B]: leaves [B, ...], on the device if one acts, else on the host.

        rows: of the tables, [B]. devices: which of those that act has it, [B].
        """
        found = [self._gather(states.initial, rows) for states in self._states]
        if len(found) == 1:
            return found[0]
        places = devices, np.arange(len(devices))
        return jax.tree.map(lambda *tables: np.stack(tables)[places], *jax.device_get(found))

    def save(self) -> dict[str, np.ndarray]:
        """While every group is paused: what the next answers depend on beside the games and the parameters."""
        core = {f"core_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self._states))}
        counter = {"key": np.asarray(self._keys[0]), "num_calls": np.array(self.num_calls)}
        rows = {"last_rows": self._last_rows, "last_texts": self._last_texts}
        return {**core, **counter, **rows, "paused": np.array(self._paused)}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """The inverse of `save`, before anything was served."""
        leaves, structure = jax.tree.flatten(self._states)
        restored = [jax.device_put(jnp.array(saved[f"core_{i}"]), leaf.sharding) for i, leaf in enumerate(leaves)]
        self._states = jax.tree.unflatten(structure, restored)
        self._keys = [jax.device_put(saved["key"], device) for device in self._devices]
        self.num_calls = int(saved["num_calls"])
        self._paused, self._unstarted = deque(saved["paused"].tolist()), set()
        self._last_rows[:], self._last_texts[:] = saved["last_rows"], saved["last_texts"]
