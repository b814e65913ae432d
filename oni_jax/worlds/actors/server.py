"""The inference server: computes actions for observations and fills trajectories, on a thread for a part of the groups.

It takes all its groups that have finished their step, answers them in one batch, and dispatches them. The next batch is
in flight before the last one is fetched, so the device waits for no host. A group whose trajectory is complete
continues in a free slot. While enough trajectories are pending for the learner no group is answered: this bounds the
policy lag, and the next actions come from newer parameters.
"""

import dataclasses
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.host.runtime import WaitClock, num_cores
from oni_jax.networks.policy import ActorCritic
from oni_jax.ops.records import as_bytes
from oni_jax.types import Array, PyTree
from oni_jax.worlds.actors.exchange import TrajectoryExchange
from oni_jax.worlds.actors.parameters import ParameterStore
from oni_jax.worlds.actors.parts import Part, split
from oni_jax.worlds.actors.policy_step import (
    Calls,
    CoreStates,
    PolicySteps,
    bucket_sizes,
    make_policy_steps,
)
from oni_jax.worlds.actors.pool import ActorPool
from oni_jax.worlds.actors.truncated import TruncatedStep, TruncatedSteps

WAIT_SECS = 0.2


@dataclasses.dataclass(eq=False)
class PolicyCall:
    """A policy step in flight, for n groups."""

    groups: np.ndarray  # [n] int32
    packed: np.ndarray  # its input, which the device may be reading
    output: Array
    lost: set[int] = dataclasses.field(default_factory=set)  # groups whose environments are gone


@dataclasses.dataclass(eq=False)
class ValueCall:
    truncated: TruncatedSteps
    output: Array  # [N]

    @property
    def packed(self) -> np.ndarray:
        return self.truncated.packed


class InferenceServer:
    """Not thread-safe, but for `stop`: one thread calls it, the one that executes `run`, or in lockstep the learner's.

    Group g is served by device g mod L of the part's L inference devices; its core states stay there.

    Args:
        policy: chooses the actions.
        exchange: holds the trajectories.
        pool: steps the part's groups.
        parameters: parameters of the policy, on all inference devices.
        key: actions are drawn with it; each part has another.
        part: part of the groups; all when left out.
        steps: functions of the policy; made when left out.
    """

    def __init__(
        self,
        policy: ActorCritic,
        exchange: TrajectoryExchange,
        pool: ActorPool,
        parameters: ParameterStore,
        key: Array,
        part: Part | None = None,
        steps: PolicySteps | None = None,
    ):
        ring, shape = exchange.ring, exchange.ring.shape
        self._exchange, self._ring, self._pool, self._parameters = exchange, ring, pool, parameters
        self._part = part = part or split(1, shape.num_groups, len(parameters.devices), 1)[0]
        key = jax.random.fold_in(key, part.index) if part.index else key
        self._devices = [parameters.devices[i] for i in part.devices]
        states = CoreStates(
            policy.initial_state(shape.num_groups * shape.group_size),
            policy.initial_state(shape.num_slots * shape.group_size),
            policy.initial_state(shape.num_groups * shape.group_size),
        )
        self._states = [
            jax.device_put(states, device) for device in self._devices
        ]  # tables, each with the rows of all groups
        self.actor_wait = WaitClock()  # nothing to infer: waiting for the actors
        self.learner_wait = WaitClock()  # every group paused: waiting for the learner
        self._slots, self._steps = np.full(shape.num_groups, -1), np.zeros(shape.num_groups, int)  # row written last
        self._record_rows = as_bytes(ring.records).reshape(shape.num_slots * (shape.rollout + 1), -1)  # rows of groups
        self._final_rows = as_bytes(ring.finals)
        self._policy_rows = exchange.policy_records.view(np.int32).reshape(shape.num_slots * shape.rollout, -1)
        self._last_rows = np.zeros_like(ring.finals)  # [G, N] of paused groups
        self._last_texts = np.zeros_like(ring.texts, shape=ring.finals.shape)
        self._runnable: list[deque[int]] = [deque() for _ in self._devices]
        self._paused = deque(part.groups)
        self._unstarted = set(self._paused)  # paused groups without environments: not started yet, or lost
        self._buckets = bucket_sizes(-(-len(part.groups) // len(self._devices)))
        self._group_calls = np.zeros(shape.num_groups, np.int32)  # policy steps started for each
        self._keys, self.num_calls = [jax.device_put(key, device) for device in self._devices], 0
        self.num_acted_steps = 0
        self._in_flight: deque[PolicyCall | ValueCall] = deque()
        self._full: deque[int] = deque()  # slots that are full once the values in flight are there
        self._buffers: defaultdict[int, list[np.ndarray]] = defaultdict(list)  # unused buffers, by their number of rows
        self._truncated = [TruncatedSteps(self._buffer(shape.group_size)) for _ in self._devices]
        made = steps or make_policy_steps(policy.apply, ring.spec, ring.records.dtype, shape.group_size)
        self._policy_step, self._value_step, self._gather = made
        self._stopping = threading.Event()

    def warm_up(self) -> None:
        """Compiles all shapes that acting uses, as many at a time as half of the cores: an accelerator's take long."""
        threads = ThreadPoolExecutor(max(1, num_cores() // 2))
        try:
            compiled = [
                threads.submit(self._warm_up, index, size)
                for index in range(len(self._devices))
                for size in self._buckets
            ]
            for call in compiled:
                call.result()
        finally:  # interrupted twice: don't wait
            threads.shutdown(wait=not isinstance(sys.exception(), KeyboardInterrupt), cancel_futures=True)
        for index in range(len(self._devices)):
            jax.block_until_ready(self._value(index))

    def _warm_up(self, index: int, num_groups: int) -> None:
        """Makes a call of padding alone, whose states are dropped."""
        shape, states = self._ring.shape, jax.tree.map(jnp.copy, self._states[index])
        padding = np.full(num_groups, shape.num_groups, np.int32), np.full(num_groups, shape.num_slots, np.int32)
        packed = np.zeros((num_groups * shape.group_size, self._ring.records.dtype.itemsize), np.uint8)
        jax.block_until_ready(self._policy_step(*states, *self._arguments(index, packed, Calls(*padding))))

    def run(self) -> None:
        """Serves until `stop`. Raises ChildError when the actors' restarts are exhausted."""
        while not self._stopping.is_set():
            self.advance()

    def advance(self) -> None:
        """Starts calls for the groups that have finished a step, fetches the calls before, and processes replies."""
        while self._paused and (slot := self._exchange.take_free()) is not None:
            self._resume(self._paused.popleft(), slot)
        started = 0 if self._exchange.must_pause else sum(map(self._start, range(len(self._devices))))
        self._fetch(keep=started)
        all_paused = self.num_paused == len(self._part.groups)
        with (self.learner_wait if all_paused else self.actor_wait).waiting():
            replies = self._pool.wait(0.0 if self._in_flight else WAIT_SECS)
        self._exchange.captions.add(replies.texts)
        if replies.done:
            self._receive(np.array(replies.done, np.int32))
        for group in replies.lost:
            self._restart(group)
        self._exchange.failures.extend(replies.failures)

    def settle(self) -> None:
        """Fetches all calls in flight, and dispatches their groups."""
        self._fetch(keep=0)

    @property
    def num_paused(self) -> int:
        """Number of groups that wait for the learner."""
        return len(self._paused) + sum(map(len, self._runnable))

    def stop(self) -> None:
        self._stopping.set()
        self._pool.wake()

    def _device_index(self, group: int) -> int:
        return group % len(self._devices)

    def _receive(self, groups: np.ndarray) -> None:
        """Notes the episodes that ended. The groups then wait for actions, or, in a full slot, for the next slot."""
        ring = self._ring
        slots, steps = self._slots[groups], self._steps[groups]
        later = (steps > 0)[:, None]  # not the first observation of all
        truncated = ring.records["truncated"][slots, steps] & later
        ended = ring.records["terminated"][slots, steps] & later | truncated
        for i, env in zip(*map(np.ndarray.tolist, ended.nonzero())):
            self._end_episode(int(groups[i]), env, bool(truncated[i, env]))
        is_full = steps == ring.shape.rollout
        for group in groups[~is_full].tolist():
            self._runnable[self._device_index(group)].append(group)
        if is_full.any():
            full, slots = groups[is_full], slots[is_full]
            # Copies: the slot may be another group's when this one resumes.
            self._last_rows[full], self._last_texts[full] = ring.records[slots, -1], ring.texts[slots, -1]
            self._full.extend(slots.tolist())
            self._paused.extend(full.tolist())
            self._value_truncated()
            self._put_full()

    def _end_episode(self, group: int, env: int, is_truncated: bool) -> None:
        """Notes an episode that a group's newest step ended; its value waits if the step was truncated."""
        ring, exchange = self._ring, self._exchange
        slot, t, index = int(self._slots[group]), int(self._steps[group]) - 1, self._device_index(group)
        if (group, env) in self._truncated[index].steps:
            self._value_truncated()  # while the core state of the episode before is there
        exchange.episodes.append(ring.episode_stats[group, env].copy())
        for name, array in exchange.finals.items():
            array[slot, t, env] = ring.finals[name][group, env]
        if is_truncated:
            if self._truncated[index].is_full:
                self._value_truncated()
            step = TruncatedStep(slot, t, int(self._group_calls[group]))
            self._truncated[index].add(group, env, step, self._final_rows[group, env])

    def _put_full(self) -> None:
        """Hands full slots to the learner, unless values of theirs may be in flight."""
        if not any(isinstance(call, ValueCall) for call in self._in_flight):
            while self._full:
                self._exchange.put_full(self._full.popleft())

    def _restart(self, group: int) -> None:
        """Drops a lost group's partial trajectory, and starts new episodes in the same slot."""
        if group in self._paused:
            self._unstarted.add(group)
            return
        runnable = self._runnable[self._device_index(group)]
        if group in runnable:
            runnable.remove(group)
        for call in self._in_flight:
            if isinstance(call, PolicyCall):
                call.lost.add(group)
        for truncated in self._truncated:
            truncated.drop(group)
        self._steps[group] = 0
        self._pool.dispatch(group, int(self._slots[group]), 0)

    def _value_truncated(self) -> None:
        """Starts calls for the bootstrap values of all truncated steps that wait for theirs."""
        for index, truncated in enumerate(self._truncated):
            if truncated.steps:
                self._in_flight.append(ValueCall(truncated, self._value(index)))
                self._truncated[index] = TruncatedSteps(self._buffer(len(truncated.packed)))

    def _value(self, index: int) -> Array:
        """Starts the call that values a device's truncated steps, each after its episode's last core state."""
        params = self._parameters.newest.params[self._part.devices[index]]
        states, truncated = self._states[index], self._truncated[index]
        rows, has_ended = np.zeros(len(truncated.packed), np.int32), np.zeros(len(truncated.packed), bool)
        for i, ((group, env), step) in enumerate(truncated.steps.items()):
            rows[i] = group * self._ring.shape.group_size + env
            has_ended[i] = self._group_calls[group] > step.num_calls
        output = self._value_step(params, states, truncated.packed, rows, has_ended)
        output.copy_to_host_async()
        return output

    def _resume(self, group: int, slot: int) -> None:
        """Continues in a new slot, whose row 0 is the last row of the old one, or the first of new episodes."""
        self._slots[group], self._steps[group] = slot, 0
        self._exchange.device_of_slot[slot] = self._part.first_table + self._device_index(group)
        self._exchange.group_of_slot[slot] = group
        if group in self._unstarted:
            self._unstarted.remove(group)
            self._pool.dispatch(group, slot, 0)
            return
        self._ring.records[slot, 0], self._ring.texts[slot, 0] = self._last_rows[group], self._last_texts[group]
        self._runnable[self._device_index(group)].append(group)

    def _start(self, index: int) -> bool:
        """Starts a call for a device's runnable groups, padded to a bucket size. Returns whether there were any."""
        shape, runnable = self._ring.shape, self._runnable[index]
        if not runnable:
            return False
        groups = np.array(runnable, np.int32)
        runnable.clear()
        size = next(bucket for bucket in self._buckets if bucket >= len(groups))
        slots, steps = self._slots[groups], self._steps[groups]
        packed = self._buffer(size * shape.group_size)
        rows = packed.reshape(size, -1)[: len(groups)]
        np.take(self._record_rows, slots * (shape.rollout + 1) + steps, axis=0, out=rows, mode="clip")
        calls = Calls(np.full(size, shape.num_groups, np.int32), np.full(size, shape.num_slots, np.int32))
        calls.groups[: len(groups)] = groups
        calls.starting_slots[: len(groups)] = np.where(steps == 0, slots, shape.num_slots)
        self._group_calls[groups] += 1
        self.num_calls += 1
        self.num_acted_steps += len(groups) * shape.group_size
        self._in_flight.append(PolicyCall(groups, packed, self._infer(index, packed, calls)))
        return True

    def _fetch(self, keep: int) -> None:
        """Waits for the outputs of the calls in flight, oldest first, but for the last `keep`."""
        while len(self._in_flight) > keep:
            call = self._in_flight.popleft()
            output = np.asarray(call.output)
            self._buffers[len(call.packed)].append(call.packed)
            if isinstance(call, PolicyCall):
                self._answer(call, output)
            else:
                values = self._exchange.policy_records["truncation_value"]
                for ((_, env), step), value in zip(call.truncated.steps.items(), output):
                    values[step.slot, step.t, env] = value
                self._put_full()

    def _answer(self, call: PolicyCall, output: np.ndarray) -> None:
        """Stores the policy's outputs for the groups, and dispatches them."""
        shape, groups = self._ring.shape, call.groups
        output = output.reshape(-1, shape.group_size, output.shape[1])[: len(groups)]
        if call.lost:
            kept = ~np.isin(groups, list(call.lost))
            groups, output = groups[kept], output[kept]
        slots, steps = self._slots[groups], self._steps[groups]
        self._policy_rows[slots * shape.rollout + steps] = output.reshape(len(groups), self._policy_rows.shape[1])
        self._ring.actions[groups] = output[:, :, 0]
        self._steps[groups] += 1
        for group, slot, t in zip(groups.tolist(), slots.tolist(), (steps + 1).tolist(), strict=True):
            self._pool.dispatch(group, slot, t)

    def _infer(self, index: int, packed: np.ndarray, calls: Calls) -> Array:
        arguments = self._arguments(index, packed, calls)
        output, self._states[index] = self._policy_step(*self._states[index], *arguments)
        output.copy_to_host_async()
        return output

    def _arguments(self, index: int, packed: np.ndarray, calls: Calls) -> tuple:
        """Returns a policy step's arguments after the states."""
        version, params = self._parameters.newest
        call = np.uint32(self.num_calls % 2**32)
        # NumPy arrays go to the device of the others: jit copies them faster than device_put does.
        return params[self._part.devices[index]], np.int32(version), self._keys[index], call, packed, calls

    def _buffer(self, num_rows: int) -> np.ndarray:
        """Returns an input buffer [num_rows, R] uint8 that no call in flight reads. Padding keeps old bytes."""
        unused = self._buffers[num_rows]
        return unused.pop() if unused else np.zeros((num_rows, self._ring.records.dtype.itemsize), np.uint8)

    def initial_rows(self, rows: np.ndarray) -> list[PyTree]:
        """Returns these rows [B] of each table of initial core states, on its device: leaves [B, ...]."""
        return [self._gather(states.initial, rows) for states in self._states]

    def save(self) -> dict[str, np.ndarray]:
        """Returns, while all groups are paused, the state that acting resumes from."""
        saved = [(states.current, states.initial) for states in self._states]  # no step waits for its value
        core = {f"core_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(saved))}
        counter = {"key": np.asarray(self._keys[0]), "num_calls": np.array(self.num_calls)}
        rows = {"last_rows": self._last_rows, "last_texts": self._last_texts}
        return {**core, **counter, **rows, "paused": np.array(self._paused)}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restores what `save` returned, before any group is served."""
        leaves, structure = jax.tree.flatten([(states.current, states.initial) for states in self._states])
        restored = [jax.device_put(jnp.array(saved[f"core_{i}"]), leaf.sharding) for i, leaf in enumerate(leaves)]
        pairs = zip(jax.tree.unflatten(structure, restored), self._states, strict=True)
        self._states = [states._replace(current=pair[0], initial=pair[1]) for pair, states in pairs]
        self._keys = [jax.device_put(saved["key"], device) for device in self._devices]
        self.num_calls = int(saved["num_calls"])
        self._paused, self._unstarted = deque(saved["paused"].tolist()), set()
        self._last_rows[:], self._last_texts[:] = saved["last_rows"], saved["last_texts"]
