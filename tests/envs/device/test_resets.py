"""Resets reach exactly the ended episodes, each with a separate key."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni_jax.envs.device.episodes import Episode, advance, begin_episode, environment_key, episode_stats, step_limit
from oni_jax.envs.device.resets import default_chunk, map_rows, reset_ended, update_rows
from oni_jax.envs.device.shown import show
from tests.envs.device.signals_env import SignalsEnv

N = 9
ENV = SignalsEnv()
update = jax.jit(update_rows, static_argnums=(0, 3))


def change(row: dict) -> dict:
    return {"x": row["x"] * 2 + 1, "y": row["y"][::-1] + row["x"]}


@given(st.lists(st.booleans(), min_size=N, max_size=N), st.sampled_from([1, 2, 4, N]))
def test_chosen_rows_are_updated_and_no_others(chosen, chunk):
    rows = {"x": jnp.arange(N), "y": jnp.arange(3 * N).reshape(N, 3)}
    mask = np.array(chosen)
    expected = jax.tree.map(
        lambda new, old: jnp.where(mask.reshape(N, *[1] * (old.ndim - 1)), new, old), jax.vmap(change)(rows), rows
    )
    jax.tree.map(np.testing.assert_array_equal, update(change, rows, mask, chunk), expected)


@functools.partial(jax.jit, static_argnums=2)
def map_totals(rows: dict, mask: jax.Array, chunk: int) -> jax.Array:
    def total(rows: dict) -> jax.Array:
        assert len(rows["x"]) == chunk
        return rows["x"] + rows["y"].sum(axis=1)

    return map_rows(total, rows, mask, chunk, jnp.full(N, -1))


@given(st.lists(st.booleans(), min_size=N, max_size=N), st.sampled_from([1, 2, 4, N]))
def test_chosen_rows_are_mapped_and_others_get_the_default(chosen, chunk):
    rows, mask = {"x": jnp.arange(N), "y": jnp.arange(3 * N).reshape(N, 3)}, np.array(chosen)
    mapped = map_totals(rows, mask, chunk)
    np.testing.assert_array_equal(mapped, np.where(mask, np.arange(N) * 10 + 3, -1))


@pytest.mark.parametrize(("num_chosen", "num_chunks"), [(0, 0), (1, 1), (4, 1), (5, 2), (9, 3)])
def test_work_is_in_proportion_to_the_chosen_rows(num_chosen, num_chunks):
    num_rows = []

    def change(x: jax.Array) -> jax.Array:
        jax.debug.callback(num_rows.append, x)
        return x + 1

    result = jax.jit(lambda x, chosen: update_rows(change, x, chosen, 4))(jnp.arange(N), np.arange(N) < num_chosen)
    jax.block_until_ready(result)
    jax.effects_barrier()
    assert len(num_rows) == 4 * num_chunks


def test_a_chunk_is_never_empty():
    assert [default_chunk(n) for n in (1, 64, 1024)] == [1, 1, 16]


def begun(num_envs: int, seed: int = 3) -> Episode:
    keys = jax.vmap(functools.partial(environment_key, seed))(jnp.arange(num_envs))
    return jax.vmap(functools.partial(begin_episode, ENV))(keys, jnp.zeros(num_envs, jnp.int32))


def leaves(episodes: Episode) -> list[np.ndarray]:
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(episodes)
    ]


@pytest.mark.parametrize("chunk", [1, 4])
def test_each_ended_episode_gets_its_next_one(chunk):
    episodes, ended = begun(N), jnp.arange(N) % 3 > 0
    shown = jax.vmap(functools.partial(show, ENV, ("signal",)))(episodes.state)
    reset, new_shown = reset_ended(ENV, episodes, shown, ended, chunk)
    after = leaves(reset)
    expected = leaves(jax.vmap(functools.partial(begin_episode, ENV))(episodes.key, episodes.number + 1))
    for x, new, old in zip(after, expected, leaves(episodes), strict=True):
        np.testing.assert_array_equal(x[ended], new[ended])
        np.testing.assert_array_equal(x[~ended], old[~ended])
    states = np.asarray(jax.random.key_data(reset.state.key))
    assert len({row.tobytes() for row in states}) == N
    np.testing.assert_array_equal(new_shown.observations["signal"], jax.vmap(ENV.observe)(reset.state)["signal"])


def test_an_episode_follows_from_seed_index_and_number():
    def first_signals(seed: int, index: int, number: int) -> list[int]:
        episode, signals = begin_episode(ENV, environment_key(seed, index), number), []
        for _ in range(12):
            signals.append(int(episode.state.signal))
            episode, _ = advance(ENV, episode, jnp.int32(0), 100)
        return signals

    cases = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**32, 0, 0), (2**63, 0, 0)]
    assert len({tuple(first_signals(*case)) for case in cases}) == len(cases)
    assert first_signals(5, 6, 7) == first_signals(5, 6, 7)


def test_an_episode_is_cut_off_at_the_limit_unless_it_ends_there():
    step, seen = jax.jit(functools.partial(advance, ENV)), set()
    for index in range(40):
        episode, rewards = begin_episode(ENV, environment_key(0, index), 0), []
        while True:
            episode, outcome = step(episode, jnp.int32(1), 3)
            rewards.append(float(outcome.reward))
            if outcome.terminated | outcome.truncated:
                break
        assert bool(outcome.truncated) == (len(rewards) == 3 and not outcome.terminated) and len(rewards) <= 3
        assert episode_stats(ENV, episode).tolist() == [sum(rewards), len(rewards), sum(rewards)]
        seen.add((len(rewards), bool(outcome.terminated)))
    assert seen == {(1, True), (2, True), (3, True), (3, False)}


@pytest.mark.parametrize(("env_limit", "asked", "limit"), [(None, 50, 50), (20, 50, 20), (60, 50, 50)])
def test_the_lower_limit_holds(env_limit, asked, limit):
    assert step_limit(SignalsEnv(env_limit), asked) == limit
