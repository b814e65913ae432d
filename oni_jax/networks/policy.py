"""The policy: encoder, recurrent core, heads. One entry point unrolls it; a single step is an unroll of T = 1."""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import linen as nn

from oni_jax.networks.core import RecurrentCore
from oni_jax.networks.heads import HEADS
from oni_jax.networks.initializers import POLICY_INITIALIZATIONS, Initialization
from oni_jax.networks.modulation import Modulation
from oni_jax.networks.precision import PRECISIONS, Precision
from oni_jax.networks.registry import find_encoder
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import GOAL_FEATURES, Array, EnvSpec, PyTree


class PolicyOutput(NamedTuple):
    """Outputs of the policy for T observations of B environments."""

    logits: Array  # [T, B, A] float32
    values: Array  # [T, B] float32


class ActorCritic(nn.Module):
    """Policy network: a shared trunk, two heads."""

    encoder: nn.Module  # {name: [N, ...]} -> [N, D]
    reads: tuple[str, ...]  # names of the observations that the encoder is given; GOAL_FEATURES modulates its output
    core: RecurrentCore
    num_actions: int
    heads: str  # a key of HEADS
    initialization: Initialization
    precision: Precision

    def initial_state(self, batch_size: int) -> PyTree:
        """Returns the core state before an episode; leaves [B, ...]. Needs no parameters."""
        return self.core.initial_state(batch_size)

    @nn.compact
    def __call__(
        self, observations: Mapping[str, Array], core_state: PyTree, is_first: Array
    ) -> tuple[PolicyOutput, PyTree]:
        """Unrolls over observations [T, B, ...] from core_state [B, ...], zeroed where is_first [T, B]."""
        chex.assert_rank(is_first, 2)
        read = {name: observations[name] for name in self.reads}
        chex.assert_tree_shape_prefix(read, is_first.shape)
        merged = {name: x.reshape(-1, *x.shape[2:]) for name, x in read.items()}
        with jax.default_matmul_precision(self.precision.float32_products):
            goals = merged.pop(GOAL_FEATURES, None)
            encoded = self.encoder(merged)
            if goals is not None:
                encoded = Modulation(name="goal")(encoded, goals)
            encoded = encoded.reshape(*is_first.shape, -1)
            features, core_state = self.core(encoded, core_state, is_first)
            features = features.astype(jnp.float32)
            logits, values = HEADS[self.heads](features, self.num_actions, self.initialization)
        return PolicyOutput(logits, values[..., 0]), core_state


def make_policy(network: NetworkConfig, spec: EnvSpec) -> ActorCritic:
    """Makes the policy for an environment that shows the `registry.policy_observations`.

    Use: `params = init_params(policy, spec, key)`, then
    `output, core_state = policy.apply(params, observations, core_state, is_first)`. It reads the observations of
    `spec`, and ignores others.

    Raises:
        UserError: an unknown encoder, or settings that don't fit it.
    """
    initialization = POLICY_INITIALIZATIONS[network.policy_initialization]
    seen = spec._replace(observations={name: x for name, x in spec.observations.items() if name != GOAL_FEATURES})
    encoder = find_encoder(network, seen).make(network, seen)
    num_layers = network.rnn_num_layers if network.use_rnn else 0
    core = RecurrentCore(network.rnn_type, network.hidden_size, num_layers)
    reads, precision = tuple(spec.observations), PRECISIONS[network.precision]
    return ActorCritic(encoder, reads, core, spec.num_actions, network.policy_heads, initialization, precision)


def init_params(policy: ActorCritic, spec: EnvSpec, key: jax.Array) -> PyTree:
    observations = {name: jnp.zeros((1, 1, *array.shape), array.dtype) for name, array in spec.observations.items()}
    return jax.jit(policy.init)(key, observations, policy.initial_state(1), jnp.ones((1, 1), bool))


def policy_and_shapes(network: NetworkConfig, spec: EnvSpec) -> tuple[ActorCritic, PyTree]:
    policy = make_policy(network, spec)
    return policy, jax.eval_shape(functools.partial(init_params, policy, spec), jax.random.key(0))


def with_tables(policy: ActorCritic, params: PyTree) -> PyTree:
    """Returns params for acting, with tables computed once for each version of them; pure, to be jitted.

    On the CPU a table of the first convolution, without which a step of few environments takes half as long again;
    elsewhere params as they are. Not for learning: no gradient reaches the kernel behind the table.
    """
    make_tables = getattr(policy.encoder, "tables", None)
    tables = make_tables(params["params"]["encoder"]) if make_tables else None
    return {**params, "tables": {"encoder": tables}} if tables else params
