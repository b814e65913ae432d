"""The APPO loss: V-trace targets, PPO's clipped objectives."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from oni_jax.ops import losses, shaping, vtrace
from oni_jax.settings.learning import LearnerConfig
from oni_jax.types import Array, PyTree, Trajectory

LossFn = Callable[[PyTree, Trajectory, Array, "vtrace.VTraceOutput | None"], tuple[Array, Mapping[str, Array]]]
TargetsFn = Callable[[PyTree, Trajectory, Array], vtrace.VTraceOutput]

RATIO_BOUNDS = (0.05, 20.0)  # outside of them a probability ratio carries no gradient
MAX_SYMMETRIC_KL = 30.0


class RewardCoeffs(NamedTuple):
    extrinsic: float
    intrinsic: Mapping[str, float]  # label -> number, for K rewards


class LossInputs(NamedTuple):
    """Inputs of the loss other than the policy's output. All [T, B]."""

    actions: Array  # int32
    behaviour_log_probs: Array
    old_values: Array  # values by the network that acted
    rewards: Array  # weighted sum of extrinsic and intrinsic
    terminations: Array  # bool
    truncations: Array  # bool
    truncation_values: Array
    mask: Array  # bool; False: too stale to learn from


def vtrace_targets(
    values: Array, bootstrap_values: Array, ratios: Array, batch: LossInputs, learner: LearnerConfig
) -> vtrace.VTraceOutput:
    """Computes V-trace of a batch: values, ratios [T, B], bootstrap_values [B] of the observation after the last step.

    With `bootstrap=published`, `published_bootstrap` replaces the latter, and a truncation counts as a termination.
    """
    chex.assert_equal_shape([values, ratios, batch.rewards])
    published = learner.bootstrap == "published"
    ends = batch.terminations | batch.truncations

    def one(values: Array, bootstrap: Array, ratios: Array, rewards: Array, ends: Array, cut: Array, final: Array):
        # ONI: the published code keeps no observation after the last step, and a truncation is a termination.
        if published:
            bootstrap, cut = vtrace.published_bootstrap(values, rewards, learner.gamma), jnp.zeros_like(cut)
        next_values = vtrace.transition_values(values, bootstrap, cut, final)
        discounts = learner.gamma * (cut | ~ends)
        return vtrace.vtrace(
            values,
            next_values,
            rewards,
            discounts,
            1.0 - ends,
            ratios,
            learner.vtrace_rho,
            learner.vtrace_c,
            learner.gae_lambda,
        )

    arguments = (ratios, batch.rewards, ends, batch.truncations & ~batch.terminations, batch.truncation_values)
    return jax.vmap(one, in_axes=(1, 0, 1, 1, 1, 1, 1), out_axes=1)(values, bootstrap_values, *arguments)


def _ratios(logits: Array, batch: LossInputs) -> Array:
    """Returns pi(a|x) / mu(a|x) [T, B], bounded."""
    log_probs = losses.action_log_probs(logits, batch.actions)
    return jnp.clip(jnp.exp(log_probs - batch.behaviour_log_probs), *RATIO_BOUNDS)


def appo_loss(
    logits: Array,
    values: Array,
    bootstrap_values: Array,
    batch: LossInputs,
    learner: LearnerConfig,
    targets: vtrace.VTraceOutput | None = None,
) -> tuple[Array, tuple[Mapping[str, Array], vtrace.VTraceOutput]]:
    """Computes the loss of the new policy's logits [T, B, A], values [T, B] and bootstrap_values [B].

    Returns the loss and (metrics, targets before normalisation). targets: those of earlier parameters, each [T, B];
    computed from the arguments when left out.
    """
    chex.assert_rank([logits, values, bootstrap_values], [3, 2, 1])
    ratios = _ratios(logits, batch)
    if targets is None:
        targets = vtrace_targets(*jax.lax.stop_gradient((values, bootstrap_values, ratios)), batch, learner)
    advantages = losses.normalise_advantages(targets.pg_advantages)

    policy_loss = losses.ppo_policy_loss(ratios, advantages, batch.mask, learner.ppo_clip_ratio)
    value_loss = learner.value_loss_coeff * losses.clipped_value_loss(
        values, batch.old_values, targets.vs, batch.mask, learner.ppo_clip_value
    )
    entropy = losses.masked_mean(losses.entropy(logits), batch.mask)
    if learner.exploration_loss == "symmetric_kl":
        divergence = losses.masked_mean(losses.symmetric_kl_to_uniform(logits), batch.mask)
        exploration_loss = learner.exploration_loss_coeff * jnp.minimum(MAX_SYMMETRIC_KL, divergence)
    else:
        exploration_loss = -learner.exploration_loss_coeff * entropy

    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "exploration_loss": exploration_loss,
        "entropy": entropy,
        "ratio_mean": jnp.mean(ratios),
        "ratio_min": jnp.min(ratios),
        "ratio_max": jnp.max(ratios),
        "ratio_clipped_fraction": jnp.mean(jnp.abs(jnp.log(ratios)) > jnp.log1p(learner.ppo_clip_ratio)),
        "masked_fraction": 1.0 - jnp.mean(batch.mask),
        "value_mean": jnp.mean(values),
        "target_mean": jnp.mean(targets.vs),
        "advantage_std": jnp.std(targets.pg_advantages),
    }
    return policy_loss + value_loss + exploration_loss, (metrics, targets)


def loss_inputs(trajectory: Trajectory, intrinsic: Array, learner: LearnerConfig, coeffs: RewardCoeffs) -> LossInputs:
    """Returns the inputs of the loss from a trajectory and its intrinsic rewards [K, T, B]."""
    extrinsic = shaping.clip_reward(trajectory.rewards, learner.reward_scale, learner.reward_clip)
    return LossInputs(
        actions=trajectory.actions,
        behaviour_log_probs=losses.action_log_probs(trajectory.behaviour_logits, trajectory.actions),
        old_values=trajectory.values,
        rewards=shaping.mix_rewards(extrinsic, intrinsic, coeffs.extrinsic, tuple(coeffs.intrinsic.values())),
        terminations=trajectory.terminations,
        truncations=trajectory.truncations,
        truncation_values=trajectory.truncation_values,
        mask=trajectory.policy_lags < learner.max_policy_lag,
    )


def make_loss_fn(policy_apply: Callable, learner: LearnerConfig, coeffs: RewardCoeffs) -> LossFn:
    """Returns the pure loss_fn(params, trajectory, intrinsic_rewards [K, T, B], targets) -> (loss, metrics).

    Metrics are scalars, and rewards [T, B] for histograms. targets: see `appo_loss`.

    policy_apply is `ActorCritic.apply`.
    """

    def loss_fn(
        params: PyTree, trajectory: Trajectory, intrinsic_rewards: Array, targets: vtrace.VTraceOutput | None = None
    ) -> tuple[Array, Mapping[str, Array]]:
        chex.assert_equal_shape([trajectory.rewards, *intrinsic_rewards, trajectory.actions, trajectory.values])
        output, _ = policy_apply(params, trajectory.observations, trajectory.initial_core_state, trajectory.is_first)
        batch = loss_inputs(trajectory, intrinsic_rewards, learner, coeffs)
        outputs = output.logits[:-1], output.values[:-1], output.values[-1]
        loss, (metrics, _) = appo_loss(*outputs, batch, learner, targets)
        each = zip(coeffs.intrinsic, intrinsic_rewards) if len(coeffs.intrinsic) > 1 else ()
        reward_metrics = {
            "reward_mean": jnp.mean(batch.rewards),
            "extrinsic_reward_mean": jnp.mean(trajectory.rewards),
            "intrinsic_reward_mean": jnp.mean(jnp.sum(intrinsic_rewards, axis=0)),
            **reward_distributions(trajectory, intrinsic_rewards),
            **{f"intrinsic_reward_mean/{name}": jnp.mean(rewards) for name, rewards in each},
            "num_rewarded_steps": jnp.sum(jnp.any(intrinsic_rewards != 0, axis=0)),
            "policy_lag_mean": jnp.mean(trajectory.policy_lags),
            "policy_lag_max": jnp.max(trajectory.policy_lags),
        }
        return loss, {**metrics, **reward_metrics}

    return loss_fn


def reward_distributions(trajectory: Trajectory, intrinsic_rewards: Array) -> Mapping[str, Array]:
    """Returns the metrics [T, B] of which histograms are made."""
    return {"extrinsic_rewards": trajectory.rewards, "intrinsic_rewards": jnp.sum(intrinsic_rewards, axis=0)}


def make_targets_fn(policy_apply: Callable, learner: LearnerConfig, coeffs: RewardCoeffs) -> TargetsFn:
    """Returns the pure targets_fn(params, trajectory, intrinsic_rewards [K, T, B]) -> value targets and advantages."""

    def targets_fn(params: PyTree, trajectory: Trajectory, intrinsic_rewards: Array) -> vtrace.VTraceOutput:
        output, _ = policy_apply(params, trajectory.observations, trajectory.initial_core_state, trajectory.is_first)
        batch = loss_inputs(trajectory, intrinsic_rewards, learner, coeffs)
        return vtrace_targets(output.values[:-1], output.values[-1], _ratios(output.logits[:-1], batch), batch, learner)

    return targets_fn
