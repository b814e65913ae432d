"""PPO's clipped objectives (Schulman et al. 2017, arXiv:1707.06347) and exploration terms, averaged over a mask."""

import chex
import jax
import jax.numpy as jnp

from oni_jax.types import TIE, Array


def masked_mean(x: Array, mask: Array) -> Array:
    """Mean of x where mask is True; 0 where nothing is. Equal shapes."""
    chex.assert_equal_shape([x, mask])
    return jnp.sum(x, where=mask) / jnp.maximum(1, jnp.sum(mask))


def normalise_advantages(advantages: Array) -> Array:
    """(adv - mean) / max(1e-3, std) over all elements, the deviation with Bessel's correction."""
    chex.assert_type(advantages, float)
    deviation = jnp.std(advantages, ddof=1 if advantages.size > 1 else 0)
    return (advantages - jnp.mean(advantages)) / jnp.maximum(1e-3, deviation)


def ppo_policy_loss(ratios: Array, advantages: Array, mask: Array, clip_ratio: float) -> Array:
    """-mean(min(ratio adv, clip(ratio, 1/(1+e), 1+e) adv)), e = clip_ratio. Equal shapes."""
    chex.assert_equal_shape([ratios, advantages, mask])
    clipped = jnp.clip(ratios, 1 / (1 + clip_ratio), 1 + clip_ratio)
    return -masked_mean(jnp.minimum(ratios * advantages, clipped * advantages), mask)


def clipped_value_loss(values: Array, old_values: Array, targets: Array, mask: Array, clip_value: float) -> Array:
    """mean(max((v - vs)^2, (v_old + clip(v - v_old, +-clip_value) - vs)^2)). Equal shapes."""
    chex.assert_equal_shape([values, old_values, targets, mask])
    clipped = old_values + jnp.clip(values - old_values, -clip_value, clip_value)
    return masked_mean(jnp.maximum((values - targets) ** 2, (clipped - targets) ** 2), mask)


def entropy(logits: Array) -> Array:
    """Entropy in nats of categorical distributions; [..., A] -> [...]."""
    chex.assert_axis_dimension_gt(logits, -1, 0)
    log_probs = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def symmetric_kl_to_uniform(logits: Array) -> Array:
    """Half the sum of both KL divergences between categorical distributions and the uniform one; [..., A] -> [...]."""
    chex.assert_axis_dimension_gt(logits, -1, 0)
    log_probs = jax.nn.log_softmax(logits)
    # KL(p|u) + KL(u|p) = sum (p - u)(log p - log u), and sum (p - u) log u = 0
    return 0.5 * jnp.sum((jnp.exp(log_probs) - 1 / logits.shape[-1]) * log_probs, axis=-1)


def action_log_probs(logits: Array, actions: Array) -> Array:
    """Log-probabilities of the actions taken; logits [..., A], actions [...] integers -> [...]."""
    chex.assert_equal_shape_prefix([logits, actions], actions.ndim)
    chex.assert_type(actions, int)
    return jnp.take_along_axis(jax.nn.log_softmax(logits), actions[..., None], axis=-1)[..., 0]


def classification_loss(logits: Array, labels: Array) -> Array:
    """Mean cross-entropy; logits [N, C], labels [N] integers."""
    return -jnp.mean(action_log_probs(logits, labels))


def ranking_loss(rewards: Array, labels: Array) -> Array:
    """Mean cross-entropy of Bradley & Terry's model: rewards [P, 2], labels [P]: 0 first better, 1 second, 2 tie.

    A tie's target is one half each. Pairs of any other label are left out; 0 where all are.
    """
    chex.assert_shape(rewards, (*labels.shape, 2))
    log_probs = jax.nn.log_softmax(rewards)
    targets = jnp.where(labels[:, None] == TIE, 0.5, jax.nn.one_hot(labels, 2))
    return masked_mean(-jnp.sum(targets * log_probs, axis=-1), labels <= TIE)


def preference_loss(logits: Array, labels: Array, smoothing: float = 0.3) -> Array:
    """Loss of BK's preferences (arXiv 2407.03964): logits [P, 2], labels [P] as of `ranking_loss`.

    Cross-entropy of the untied pairs, plus `smoothing` times the mean of -log softmax over both classes, ties included.
    """
    # BK: without an untied pair in the batch the loss is NaN.
    chex.assert_shape(logits, (*labels.shape, 2))
    log_probs = jax.nn.log_softmax(logits)
    chosen = jnp.sum(jax.nn.one_hot(labels, 2) * log_probs, axis=-1)
    return masked_mean(-chosen, labels < TIE) + smoothing * masked_mean(-jnp.mean(log_probs, axis=-1), labels <= TIE)


def ranking_accuracy(rewards: Array, labels: Array) -> Array:
    """Fraction of the untied pairs whose better one has the higher reward; arguments as of `ranking_loss`."""
    chex.assert_shape(rewards, (*labels.shape, 2))
    return masked_mean(((rewards[:, 1] > rewards[:, 0]) == labels).astype(jnp.float32), labels < TIE)
