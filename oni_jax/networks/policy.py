"""The policy: encoder, recurrent core, heads. One entry point unrolls it; a single step is an unroll of T = 1."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from flax import linen as nn

from oni_jax.config import NetworkConfig
from oni_jax.types import Array, EnvSpec, PyTree


class PolicyOutput(NamedTuple):
    """What the policy says of T observations of B environments."""

    logits: Array  # [T, B, A] float32
    values: Array  # [T, B] float32


class ActorCritic(nn.Module):
    """Shared trunk, two heads."""

    num_actions: int

    def initial_state(self, batch_size: int) -> PyTree:
        """Core state before an episode; leaves [B, ...]. Needs no parameters."""
        raise NotImplementedError

    def __call__(
        self, observations: Mapping[str, Array], core_state: PyTree, is_first: Array
    ) -> tuple[PolicyOutput, PyTree]:
        """Unrolls over observations [T, B, ...] from core_state [B, ...], zeroed where is_first [T, B]."""
        raise NotImplementedError


def make_policy(network: NetworkConfig, spec: EnvSpec, glyph_table: np.ndarray | None) -> ActorCritic:
    """The policy for an environment. glyph_table [256, 16, 6, 6, 3] uint8, needed to draw `chars` and `colors`.

    Use: `params = init_params(policy, spec, key)`, then
    `output, core_state = policy.apply(params, observations, core_state, is_first)`.
    Raises UserError when the environment lacks an observation that the encoder needs.
    """
    raise NotImplementedError


def init_params(policy: ActorCritic, spec: EnvSpec, key: jax.Array) -> PyTree:
    """Fresh parameters of `policy`."""
    raise NotImplementedError
