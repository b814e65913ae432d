"""Agents of an evaluation: random actions, or a trained policy."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.evaluation.playing import Agent
from oni_jax.networks.policy import ActorCritic, with_tables
from oni_jax.ops.records import as_bytes, unpack_records
from oni_jax.types import Array, EnvSpec, PyTree


class RandomAgent(Agent):
    """Draws actions uniformly."""

    def __init__(self, num_actions: int, seed: int):
        self._num_actions, self._seed = num_actions, seed
        self._generators: dict[tuple[int, int], np.random.Generator] = {}  # (group, row) -> the running episode's

    def act(self, group: int, records: np.ndarray, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        for i in np.flatnonzero(steps == 0).tolist():
            # A separate spawn_key: the environments' seeds are made from other sequences.
            sequence = np.random.SeedSequence([self._seed, int(episodes[i])], spawn_key=(0,))
            self._generators[group, i] = np.random.default_rng(sequence)
        draws = [self._generators[group, i].integers(self._num_actions) for i in range(len(steps))]
        return np.array(draws, np.int32)


class PolicyAgent(Agent):
    """A policy that samples from its distribution, or takes the most probable action."""

    def __init__(self, policy: ActorCritic, spec: EnvSpec, params: PyTree, seed: int, greedy: bool):
        self._policy = policy
        self._params = jax.jit(functools.partial(with_tables, policy))(params)
        self._key = jax.random.key(seed)
        # Function for each layout of records: they may hold observations that the policy does not read.
        self._act_of = functools.cache(lambda record: jax.jit(make_act_fn(policy.apply, spec, record, greedy)))
        self._core_states: dict[int, PyTree] = {}  # group -> state

    def act(self, group: int, records: np.ndarray, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        before = self._core_states.get(group)
        if before is None:
            before = self._policy.initial_state(len(steps))
        # Copies: the device may read them during the next step of the environments.
        packed = jnp.asarray(as_bytes(records.copy()))
        act = self._act_of(records.dtype)
        actions, self._core_states[group] = act(self._params, self._key, before, packed, episodes.copy(), steps.copy())
        return np.asarray(actions)


def make_act_fn(policy_apply: Callable, spec: EnvSpec, record: np.dtype, greedy: bool) -> Callable:
    """Returns act(params, key, core_state, packed [N, R] uint8, episodes [N], steps [N]) -> (actions [N], core_state).

    An action is drawn with `key` folded with its episode's index and step: it does not depend on the other rows.
    """

    def draw(key: Array, episode: Array, step: Array, logits: Array) -> Array:
        return jax.random.categorical(jax.random.fold_in(jax.random.fold_in(key, episode), step), logits)

    def act(
        params: PyTree, key: Array, core_state: PyTree, packed: Array, episodes: Array, steps: Array
    ) -> tuple[Array, PyTree]:
        fields = unpack_records(packed, record, [*spec.observations, "is_first"])
        observations = {name: fields[name][None] for name in spec.observations}
        output, core_state = policy_apply(params, observations, core_state, fields["is_first"][None])
        logits = output.logits[0]
        if greedy:
            return logits.argmax(axis=-1).astype(jnp.int32), core_state
        actions = jax.vmap(draw, in_axes=(None, 0, 0, 0))(key, episodes, steps, logits)
        return actions.astype(jnp.int32), core_state

    return act
