"""Pure functions for one batched step of the policy."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.ops.records import unpack_records
from oni_jax.ops.sampling import sample_actions
from oni_jax.types import Array, EnvSpec, PyTree


class CoreStates(NamedTuple):
    """States of the recurrent core, which stay on the device."""

    current: PyTree  # leaves [G*N, ...]; one row an environment, rows of group g at g*N
    initial: PyTree  # leaves [S*N, ...]; the state before row 0 of each slot's trajectories
    ended: PyTree  # leaves [G*N, ...]; `current` of each row when its newest episode began: the last one's state


class Calls(NamedTuple):
    """The n groups that a step serves. A padding row has group G and slot S; its result is dropped."""

    groups: Array  # [n] int32
    starting_slots: Array  # [n] int32; the slot where this is row 0, else S


class PolicySteps(NamedTuple):
    """Functions that the threads that answer call on the devices, compiled once for all threads."""

    policy_step: Callable
    value_step: Callable
    gather: Callable  # (table, rows) -> leaves [n, ...]


def make_policy_steps(policy_apply: Callable, spec: EnvSpec, record: np.dtype, group_size: int) -> PolicySteps:
    """Returns the jitted functions; see `make_policy_step_fn` and `make_value_step_fn`."""
    step = make_policy_step_fn(policy_apply, spec, record, group_size)
    gather = jax.jit(lambda states, rows: jax.tree.map(lambda table: table[rows], states))
    return PolicySteps(step, make_value_step_fn(policy_apply, spec, record), gather)


def make_policy_step_fn(policy_apply: Callable, spec: EnvSpec, record: np.dtype, group_size: int) -> Callable:
    """Returns policy_step(*states, params, version, key, call, packed [n*N, R] uint8, calls) -> (output, states).

    output: [n*N, 4 + A] int32, the words of `policy_record_dtype`; `version` is that of the parameters. Actions are
    drawn from the policy, with `key` folded with `call`, a number that is never used twice. It is jitted and donates
    the buffers of `states`, but not of `states.initial`, which another thread may be reading.
    """
    names = [*spec.observations, "is_first"]

    @functools.partial(jax.jit, donate_argnums=(0, 2))
    def policy_step(
        current: PyTree,
        initial: PyTree,
        ended: PyTree,
        params: PyTree,
        version: Array,
        key: Array,
        call: Array,
        packed: Array,
        calls: Calls,
    ) -> tuple[Array, CoreStates]:
        fields = unpack_records(packed, record, names)
        rows = _rows(calls.groups, group_size)
        start_rows = _rows(calls.starting_slots, group_size)
        before = jax.tree.map(lambda table: table.at[rows].get(mode="clip"), current)
        initial = jax.tree.map(lambda table, new: table.at[start_rows].set(new, mode="drop"), initial, before)
        ended_rows = jnp.where(fields["is_first"], rows, jnp.iinfo(jnp.int32).max)
        ended = jax.tree.map(lambda table, new: table.at[ended_rows].set(new, mode="drop"), ended, before)
        observations = {name: fields[name][None] for name in spec.observations}
        output, after = policy_apply(params, observations, before, fields["is_first"][None])
        current = jax.tree.map(lambda table, new: table.at[rows].set(new, mode="drop"), current, after)
        actions = sample_actions(jax.random.uniform(jax.random.fold_in(key, call), rows.shape), output.logits[0])
        floats = output.values[0][:, None], output.logits[0]
        value, logits = (jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.int32) for x in floats)
        no_truncation, versions = jnp.zeros_like(actions), jnp.full_like(actions, version)
        words = actions[:, None], value, logits, no_truncation[:, None], versions[:, None]
        return jnp.concatenate(words, axis=1), CoreStates(current, initial, ended)

    return policy_step


def make_value_step_fn(policy_apply: Callable, spec: EnvSpec, record: np.dtype) -> Callable:
    """Returns value_step(params, states, packed [n, R] uint8, rows [n], has_ended [n] bool) -> values [n], jitted.

    They are the values of final observations, each after the core state of its row: the current one, or the one that
    its last episode ended with.
    """

    @jax.jit
    def value_step(params: PyTree, states: CoreStates, packed: Array, rows: Array, has_ended: Array) -> Array:
        def before(current: Array, ended: Array) -> Array:
            return jnp.where(has_ended.reshape(-1, *[1] * (current.ndim - 1)), ended[rows], current[rows])

        fields = unpack_records(packed, record, list(spec.observations))
        core_states = jax.tree.map(before, states.current, states.ended)
        observations = {name: value[None] for name, value in fields.items()}
        output, _ = policy_apply(params, observations, core_states, jnp.zeros((1, rows.shape[0]), bool))
        return output.values[0]

    return value_step


def join_tables(found: Sequence[PyTree], indices: np.ndarray) -> PyTree:
    """Returns trajectories' initial core states: leaves [B, ...], on the device if there is one, else on the host.

    Args:
        found: rows of each table for all trajectories, leaves [B, ...].
        indices: indices of the table that holds each trajectory's, [B].
    """
    if len(found) == 1:
        return found[0]
    if len({leaf.sharding for leaf in jax.tree.leaves(found)}) == 1:
        return _select(found, indices)
    chosen = indices, np.arange(len(indices))
    return jax.tree.map(lambda *tables: np.stack(tables)[chosen], *jax.device_get(found))


@jax.jit
def _select(found: Sequence[PyTree], indices: Array) -> PyTree:
    chosen = indices, jnp.arange(len(indices))
    return jax.tree.map(lambda *tables: jnp.stack(tables)[chosen], *found)


def bucket_sizes(num_groups: int) -> Sequence[int]:
    """Returns the bucket sizes, in groups, for which the step is compiled: powers of two, and all groups."""
    return [1 << power for power in range((num_groups - 1).bit_length())] + [num_groups]


def _rows(indices: Array, size: int) -> Array:
    return (indices[:, None] * size + jnp.arange(size, dtype=jnp.int32)).reshape(-1)
