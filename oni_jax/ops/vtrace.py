"""V-trace targets (Espeholt et al. 2018, arXiv:1802.01561), for one sequence; `jax.vmap` gives batches."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from oni_jax.types import Array


class VTraceOutput(NamedTuple):
    """Targets of a sequence."""

    vs: Array  # [T] value targets
    pg_advantages: Array  # [T] rho_t (r_t + gamma_t vs_{t+1} - v_t)


def transition_values(values: Array, bootstrap_value: Array, truncations: Array, truncation_values: Array) -> Array:
    """Returns v_{t+1} [T]: value of the next observation; after a truncation, that of the final observation.

    values [T], bootstrap_value [] of the observation after the last step, truncations [T] bool, truncation_values [T].
    """
    chex.assert_rank([values, bootstrap_value], [1, 0])
    chex.assert_equal_shape([values, truncations, truncation_values])
    return jnp.where(truncations, truncation_values, jnp.append(values[1:], bootstrap_value))


def vtrace(
    values: Array,
    next_values: Array,
    rewards: Array,
    discounts: Array,
    continues: Array,
    ratios: Array,
    clip_rho_threshold: float = 1.0,
    clip_c_threshold: float = 1.0,
    lambda_: float = 1.0,
) -> VTraceOutput:
    """Computes V-trace of T steps, all arguments [T].

    next_values: v_{t+1} as `transition_values` gives it. discounts: gamma, 0 after a termination.
    continues: 1 where step t+1 belongs to the same episode, else 0, so that no trace crosses into another one:
    after a truncation the target is the value of the final observation itself. ratios: pi(a|x) / mu(a|x).
    lambda_: decay of traces (the paper's remark 2); with ratios of 1, `pg_advantages` are those of GAE (Schulman et al.
    2015, arXiv:1506.02438), and `vs` these plus the values. No gradient flows through the results.
    """
    chex.assert_rank(values, 1)
    chex.assert_equal_shape([values, next_values, rewards, discounts, continues, ratios])
    rhos = jnp.minimum(clip_rho_threshold, ratios)
    traces = lambda_ * discounts * continues * jnp.minimum(clip_c_threshold, ratios)
    errors = rhos * (rewards + discounts * next_values - values)

    # vs_t - v_t = error_t + gamma_t c_t (vs_{t+1} - v_{t+1})
    def backwards(correction: Array, step: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        error, trace = step
        return error + trace * correction, (error + trace * correction, correction)

    _, (corrections, next_corrections) = jax.lax.scan(
        backwards, jnp.zeros_like(values[0]), (errors, traces), reverse=True
    )
    next_vs = next_values + lambda_ * continues * next_corrections
    output = VTraceOutput(vs=values + corrections, pg_advantages=rhos * (rewards + discounts * next_vs - values))
    return jax.lax.stop_gradient(output)


def published_bootstrap(values: Array, rewards: Array, gamma: float) -> Array:
    """Returns the published substitute of the bootstrap value, []: it makes the last step's error 0.

    values, rewards [T].
    """
    chex.assert_rank([values, rewards], 1)
    return (values[-1] - rewards[-1]) / gamma
