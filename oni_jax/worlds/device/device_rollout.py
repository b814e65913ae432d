"""T steps of N environments on an accelerator, the policy inside, as one pure function to be jitted."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from oni_jax.envs.device.autoreset import Stepped, begin_all, step_all
from oni_jax.envs.device.base import DeviceEnv
from oni_jax.envs.device.episodes import Episode, environment_key
from oni_jax.envs.device.resets import default_chunk, map_rows
from oni_jax.envs.device.shown import Shown
from oni_jax.networks.policy import ActorCritic, with_tables
from oni_jax.ops.sampling import sample_actions
from oni_jax.types import Array, EnvSpec, GoalModelFn, PyTree, Trajectory
from oni_jax.worlds.device.goal_table import with_new_rows

_ACTIONS = 0x7FFF_FFFF  # folded into an environment's key; an index below it would be an episode's number


class Running(NamedTuple):
    """N running environments and the policy's memory of them; leaves [N, ...]."""

    episodes: Episode
    shown: Shown  # the present states
    is_first: Array  # bool; the present state is an episode's first
    core_state: PyTree


class Texts(NamedTuple):
    """Codes and keys of a rollout's texts, see `DeviceEnv`, and the statistics of ended episodes."""

    codes: Array  # [T+1, N, 2] uint32; of the captions of the observations
    keys: Array  # [T+1, N, M] uint8
    final_codes: Array  # [T, N, 2] uint32; of the captions that the actions led to, before any reset
    final_keys: Array  # [T, N, M] uint8
    stats: Array  # [T, N, K] float32; valid where an episode ended


class Task(NamedTuple):
    """An environment and its policy; static."""

    env: DeviceEnv
    spec: EnvSpec  # spec with the observations that the policy or a reward reads
    policy: ActorCritic
    limit: int  # steps after which an episode is truncated
    unroll: int  # T
    goal_model: GoalModelFn | None = None


class Inputs(NamedTuple):
    """Parameters and random numbers of a rollout; replicated."""

    params: PyTree  # parameters of the policy
    count: Array  # [] int32; never used twice: actions are drawn with it, from a key of each environment
    goal_params: PyTree = ()  # parameters of the goal model


def make_start_fn(task: Task, seed: int) -> Callable[[Array], Running]:
    """Returns start(indices [N] uint32) -> the environments with these indices among all with this seed."""

    def start(indices: Array) -> Running:
        keys = jax.vmap(functools.partial(environment_key, seed))(indices)
        episodes, shown = begin_all(task.env, tuple(task.spec.observations), keys, jnp.zeros_like(indices, jnp.int32))
        num_envs = len(indices)
        return Running(episodes, shown, jnp.ones(num_envs, bool), task.policy.initial_state(num_envs))

    return start


def make_collect_fn(
    task: Task,
) -> Callable[[Inputs, PyTree, PyTree, Running], tuple[Running, PyTree, Trajectory, Texts]]:
    """Returns collect(inputs, table, new, running) -> (running, table, trajectories, texts).

    `table`: the goals that an LLM has suggested, see `DeviceEnv.suggesting`; (): none are asked for. `new`: its
    `goal_table.NewRows`.

    Actions are the same however the environments are sharded. The trajectories lack their counts of captions.
    """
    spec, policy, limit, unroll, goal_model = task[1:]
    names = tuple(spec.observations)

    def collect(
        inputs: Inputs, table: PyTree, new: PyTree, running: Running
    ) -> tuple[Running, PyTree, Trajectory, Texts]:
        table = with_new_rows(table, new) if new else table
        model = goal_model and functools.partial(goal_model, inputs.goal_params)
        env = task.env.suggesting(table or None, model) if table or model else task.env
        params, count = with_tables(policy, inputs.params), inputs.count
        chex.assert_rank(running.is_first, 1)
        chunk = default_chunk(len(running.is_first))

        def values_of(rows: tuple[dict[str, Array], PyTree]) -> Array:
            observations, core_state = rows
            is_first = jnp.zeros((1, chunk), bool)
            return policy.apply(params, _as_unroll(observations), core_state, is_first)[0].values[0]

        def step(running: Running, uniforms: Array) -> tuple[Running, tuple]:
            output, core_state = policy.apply(
                params, _as_unroll(running.shown.observations), running.core_state, running.is_first[None]
            )
            logits, values = output.logits[0], output.values[0]
            actions = sample_actions(uniforms, logits)
            episodes, shown, stepped = step_all(env, names, running.episodes, actions, limit)
            final_values = map_rows(
                values_of,
                (stepped.final.observations, core_state),
                stepped.outcome.truncated,
                chunk,
                jnp.zeros_like(values),
            )
            acted = {"actions": actions, "behaviour_logits": logits, "values": values}
            seen = (running.shown, running.is_first, stepped, {**acted, "truncation_values": final_values})
            return Running(episodes, shown, stepped.ended, core_state), seen

        uniforms = _uniforms(running.episodes.key, count, unroll)
        after, (shown, is_first, stepped, acted) = jax.lax.scan(step, running, uniforms.T)
        shown, is_first = jax.tree.map(_append, (shown, is_first), (after.shown, after.is_first))
        trajectory = _trajectory(spec, running, shown, is_first, stepped, acted)
        final = stepped.final
        codes = shown.caption_code, shown.caption_key, final.caption_code, final.caption_key
        return after, table, trajectory, Texts(*codes, stepped.stats)

    return collect


def _uniforms(keys: Array, count: Array, unroll: int) -> Array:
    """Returns uniform numbers [N, T] that actions are drawn by."""

    def draw(key: Array) -> Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, _ACTIONS), count), (unroll,))

    return jax.vmap(draw)(keys)


def _as_unroll(observations: dict[str, Array]) -> dict[str, Array]:
    return {name: x[None] for name, x in observations.items()}


def _append(rows: Array, last: Array) -> Array:
    return jnp.concatenate([rows, last[None]])


def _trajectory(
    spec: EnvSpec, before: Running, shown: Shown, is_first: Array, stepped: Stepped, acted: dict[str, Array]
) -> Trajectory:
    outcome = stepped.outcome
    return Trajectory(
        observations=shown.observations,
        is_first=is_first,
        before_counts=(),
        caused_counts=(),
        rewards=outcome.reward,
        terminations=outcome.terminated,
        truncations=outcome.truncated,
        final_observations={name: stepped.final.observations[name] for name in spec.final_observations},
        policy_lags=jnp.zeros_like(acted["actions"]),
        initial_core_state=before.core_state,
        **acted,
    )
