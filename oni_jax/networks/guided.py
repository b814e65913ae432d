"""Guided exploration: a frozen policy and the one that learns act in turns, each step drawn by a probability.

Source: Du et al. 2023, arXiv 2302.06692, where a frozen policy's actions replace some of the random ones.
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from oni_jax.networks.policy import ActorCritic, PolicyOutput
from oni_jax.types import Array, PyTree


@dataclasses.dataclass(frozen=True)
class GuidedPolicy:
    """A policy for acting alone, with the interface of `ActorCritic`.

    Its parameters are (those of `policy`, those of `guide`, the probability of the guide's action [] float32). Its
    logits are those of the mixture of both, so that actions drawn by them have the probabilities that V-trace divides
    by; its values are those of `policy`.
    """

    policy: ActorCritic
    guide: ActorCritic
    encoder = None  # an encoder would have tables; see `policy.with_tables`

    def initial_state(self, batch_size: int) -> tuple[PyTree, PyTree]:
        return self.policy.initial_state(batch_size), self.guide.initial_state(batch_size)

    def apply(
        self, params: PyTree, observations: Mapping[str, Array], core_state: tuple[PyTree, PyTree], is_first: Array
    ) -> tuple[PolicyOutput, tuple[PyTree, PyTree]]:
        policy_params, guide_params, probability = params
        output, policy_state = self.policy.apply(policy_params, observations, core_state[0], is_first)

        def guided(guide_state: PyTree) -> tuple[Array, PyTree]:
            guide, guide_state = self.guide.apply(guide_params, observations, guide_state, is_first)
            return mixture_logits(output.logits, guide.logits, probability), guide_state

        # The guide's network is not computed any more once the guide has had its steps.
        logits, guide_state = jax.lax.cond(probability > 0, guided, lambda state: (output.logits, state), core_state[1])
        return PolicyOutput(logits, output.values), (policy_state, guide_state)


def mixture_logits(logits: Array, others: Array, probability: Array) -> Array:
    """Returns the logarithms of (1 - p) softmax(logits) + p softmax(others), over the last axis."""
    log_probs, other = jax.nn.log_softmax(logits), jax.nn.log_softmax(others)
    return jnp.logaddexp(jnp.log1p(-probability) + log_probs, jnp.log(probability) + other)
