"""V-trace against its definition, summed up term by term in O(T^2)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.ops.vtrace import published_bootstrap, transition_values, vtrace

T = 12


def off_policy_sequence(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    ends = rng.random(T) < 0.3
    truncations = ends & (rng.random(T) < 0.5)
    return {
        "values": rng.normal(size=T),
        "bootstrap_value": rng.normal(),
        "rewards": rng.normal(size=T),
        "ratios": np.exp(rng.normal(scale=2.0, size=T)),
        "terminations": ends & ~truncations,
        "truncations": truncations,
        "truncation_values": np.where(truncations, rng.normal(size=T), 0.0),
    }


def reference(sequence: dict, gamma: float, clip_rho: float, clip_c: float) -> tuple[np.ndarray, np.ndarray]:
    """vs_s = v_s + sum_t gamma^(t-s) (c_s ... c_(t-1)) delta_t, t running to the end of the episode or of the data."""
    values, rewards, ratios = sequence["values"], sequence["rewards"], sequence["ratios"]
    next_values, discounts = np.append(values[1:], sequence["bootstrap_value"]), np.full(T, gamma)
    next_values = np.where(sequence["truncations"], sequence["truncation_values"], next_values)
    discounts[sequence["terminations"]] = 0.0
    rhos, cs = np.minimum(clip_rho, ratios), np.minimum(clip_c, ratios)
    ends = sequence["terminations"] | sequence["truncations"]
    vs = np.copy(values)
    for s in range(T):
        weight = 1.0
        for t in range(s, T):
            vs[s] += weight * rhos[t] * (rewards[t] + discounts[t] * next_values[t] - values[t])
            if ends[t]:
                break
            weight *= gamma * cs[t]
    next_vs = np.where(ends, next_values, np.append(vs[1:], sequence["bootstrap_value"]))
    return vs, rhos * (rewards + discounts * next_vs - values)


def run(sequence: dict, gamma: float, clip_rho: float, clip_c: float, jit: bool, lambda_: float = 1.0):
    x = {name: jnp.asarray(v, jnp.float32 if np.asarray(v).dtype == float else None) for name, v in sequence.items()}
    next_values = transition_values(x["values"], x["bootstrap_value"], x["truncations"], x["truncation_values"])
    ends = x["terminations"] | x["truncations"]
    function = jax.jit(vtrace) if jit else vtrace
    discounts = gamma * (1.0 - x["terminations"])
    clips = clip_rho, clip_c, lambda_
    return function(x["values"], next_values, x["rewards"], discounts, 1.0 - ends, x["ratios"], *clips)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("clip_rho", "clip_c"), [(1.0, 1.0), (2.0, 0.7), (0.5, 1.3)])
def test_equals_definition_off_policy(clip_rho, clip_c, jit):
    for seed in range(5):
        sequence = off_policy_sequence(seed)
        vs, advantages = reference(sequence, 0.9, clip_rho, clip_c)
        output = run(sequence, 0.9, clip_rho, clip_c, jit)
        np.testing.assert_allclose(output.vs, vs, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(output.pg_advantages, advantages, rtol=1e-4, atol=1e-5)


def test_targets_on_policy_are_discounted_returns():
    sequence = off_policy_sequence(0) | {"ratios": np.ones(T)}
    sequence |= {name: np.zeros(T, bool) for name in ("terminations", "truncations")}
    discounts = 0.9 ** np.arange(T)
    returns = discounts @ sequence["rewards"] + 0.9**T * sequence["bootstrap_value"]
    np.testing.assert_allclose(run(sequence, 0.9, 1.0, 1.0, True).vs[0], returns, rtol=1e-5)


@pytest.mark.parametrize("lambda_", [0.0, 0.6, 0.95, 1.0])
def test_vtrace_on_policy_with_lambda_is_gae(lambda_):
    gamma = 0.9
    for seed in range(5):
        sequence = off_policy_sequence(seed) | {"ratios": np.ones(T)}
        values, truncations = sequence["values"], sequence["truncations"]
        next_values = np.append(values[1:], sequence["bootstrap_value"])
        next_values = np.where(truncations, sequence["truncation_values"], next_values)
        errors = sequence["rewards"] + gamma * (1 - sequence["terminations"]) * next_values - values
        advantages, advantage = np.zeros(T), 0.0
        for t in reversed(range(T)):
            goes_on = not (truncations[t] or sequence["terminations"][t])
            advantages[t] = advantage = errors[t] + gamma * lambda_ * goes_on * advantage
        output = run(sequence, gamma, 1.0, 1.0, True, lambda_)
        np.testing.assert_allclose(output.pg_advantages, advantages, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(output.vs, advantages + values, rtol=1e-5, atol=1e-5)


def test_episode_ends_cut_targets():
    sequence = off_policy_sequence(1)
    for end in ("terminations", "truncations"):
        ended = sequence | {name: np.zeros(T, bool) for name in ("terminations", "truncations")}
        ended[end] = np.arange(T) == 5
        before = run(ended, 0.9, 1.0, 1.0, True)
        later = run(ended | {"rewards": ended["rewards"] + 7.0 * (np.arange(T) > 5)}, 0.9, 1.0, 1.0, True)
        np.testing.assert_array_equal(before.vs[:6], later.vs[:6])
        assert np.abs(before.vs[6:] - later.vs[6:]).max() > 1.0


def test_targets_carry_no_gradient():
    def total(values):
        x = jnp.ones(T)
        return sum(jnp.sum(y) for y in vtrace(values, values, x, x, x, x))

    assert not np.any(jax.grad(total)(jnp.arange(T, dtype=jnp.float32)))


def test_published_bootstrap_makes_the_last_error_zero():
    values, rewards = jnp.asarray([1.0, 2.0]), jnp.asarray([5.0, 0.5])
    bootstrap = published_bootstrap(values, rewards, 0.9)
    assert rewards[-1] + 0.9 * bootstrap == pytest.approx(values[-1])


def test_published_bootstrap_makes_the_last_advantage_zero():
    sequence = off_policy_sequence(2) | {name: np.zeros(T, bool) for name in ("terminations", "truncations")}
    sequence["bootstrap_value"] = published_bootstrap(sequence["values"], sequence["rewards"], 0.9)
    advantages = run(sequence, 0.9, 1.0, 1.0, True).pg_advantages
    assert advantages[-1] == pytest.approx(0, abs=1e-5)
    assert np.abs(advantages[:-1]).min() > 1e-3


def test_batches_are_sequences_side_by_side():
    arguments = [np.random.default_rng(seed).uniform(size=(6, T)).astype(np.float32) for seed in range(3)]
    batch = jax.jit(jax.vmap(vtrace, in_axes=1, out_axes=1))(*np.stack(arguments, axis=2))
    for i, (values, next_values, *others) in enumerate(arguments):
        for together, alone in zip(batch, jax.jit(vtrace)(values, next_values, *others), strict=True):
            np.testing.assert_allclose(together[:, i], alone, rtol=1e-5, atol=1e-6)
