"""The policy: encoder, recurrent core, heads. One entry point unrolls it; a single step is an unroll of T = 1."""

from collections.abc import Mapping
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from oni_jax.config import NetworkConfig, UserError
from oni_jax.networks.convolution import use_matrix_products
from oni_jax.networks.core import RecurrentCore
from oni_jax.networks.encoders import ACTIVATIONS, MlpEncoder, RgbCropEncoder
from oni_jax.networks.glyphs import TorchbeastEncoder, make_torchbeast_encoder
from oni_jax.networks.images import CONV_LAYERS, ConvStack, ResNet, make_window
from oni_jax.networks.initializers import FAN_IN_UNIFORM, POLICY_INITIALIZATIONS, Initialization
from oni_jax.networks.precision import PRECISIONS, Dense, Precision
from oni_jax.types import Array, EnvSpec, PyTree


class PolicyOutput(NamedTuple):
    """What the policy says of T observations of B environments."""

    logits: Array  # [T, B, A] float32
    values: Array  # [T, B] float32


class ActorCritic(nn.Module):
    """Shared trunk, two heads."""

    encoder: nn.Module  # {name: [N, ...]} -> [N, D]
    core: RecurrentCore
    num_actions: int
    initialization: Initialization
    precision: Precision

    def initial_state(self, batch_size: int) -> PyTree:
        """Core state before an episode; leaves [B, ...]. Needs no parameters."""
        return self.core.initial_state(batch_size)

    @nn.compact
    def __call__(
        self, observations: Mapping[str, Array], core_state: PyTree, is_first: Array
    ) -> tuple[PolicyOutput, PyTree]:
        """Unrolls over observations [T, B, ...] from core_state [B, ...], zeroed where is_first [T, B]."""
        chex.assert_rank(is_first, 2)
        chex.assert_tree_shape_prefix(dict(observations), is_first.shape)
        merged = {name: x.reshape(-1, *x.shape[2:]) for name, x in observations.items()}
        with jax.default_matmul_precision(self.precision.float32_products):
            encoded = self.encoder(merged).reshape(*is_first.shape, -1)
            features, core_state = self.core(encoded, core_state, is_first)
            features = features.astype(jnp.float32)
            logits = Dense(self.num_actions, self.initialization, name="logits")(features)
            values = Dense(1, self.initialization, name="value")(features)
        return PolicyOutput(logits, values[..., 0]), core_state


def make_policy(network: NetworkConfig, spec: EnvSpec, glyph_table: np.ndarray | None) -> ActorCritic:
    """The policy for an environment. glyph_table [256, 16, 6, 6, 3] uint8, needed to draw `chars` and `colors`.

    Use: `params = init_params(policy, spec, key)`, then
    `output, core_state = policy.apply(params, observations, core_state, is_first)`.
    Raises UserError when the environment lacks an observation that the encoder needs.
    """
    initialization = POLICY_INITIALIZATIONS[network.policy_initialization]
    encoder = _ENCODERS[network.encoder_custom](network, initialization, glyph_table)
    missing = [name for name in encoder.required_observations() if name not in spec.observations]
    if missing:
        raise UserError(
            f"--encoder_custom={network.encoder_custom} needs the observations {', '.join(missing)}, "
            f"which this environment does not give (it gives {', '.join(spec.observations) or 'none'}): "
            "choose another encoder or environment."
        )
    num_layers = network.rnn_num_layers if network.use_rnn else 0
    core = RecurrentCore(network.rnn_type, network.hidden_size, num_layers)
    return ActorCritic(encoder, core, spec.num_actions, initialization, PRECISIONS[network.precision])


def init_params(policy: ActorCritic, spec: EnvSpec, key: jax.Array) -> PyTree:
    """Fresh parameters of `policy`."""
    observations = {name: jnp.zeros((1, 1, *array.shape), array.dtype) for name, array in spec.observations.items()}
    return jax.jit(policy.init)(key, observations, policy.initial_state(1), jnp.ones((1, 1), bool))


def with_tables(policy: ActorCritic, params: PyTree) -> PyTree:
    """params for acting, with what need be computed only once of each version of them; pure, to be jitted.

    On the CPU a table of the first convolution, without which a step of few environments takes half as long again;
    elsewhere params as they are. Not to be learnt with: no gradient reaches the kernel behind the table.
    """
    encoder = policy.encoder
    if not (isinstance(encoder, RgbCropEncoder) and encoder.window and isinstance(encoder.image_stack, ConvStack)):
        return params
    if not use_matrix_products():
        return params
    kernel = params["params"]["encoder"]["image_stack"]["conv_0"]["kernel"]
    table = encoder.image_stack.first_layer_table(kernel, encoder.window.tiles)
    return {**params, "tables": {"encoder": {"image_stack": {"conv_0": table}}}}


def _rgbcrop_encoder(
    network: NetworkConfig, initialization: Initialization, glyph_table: np.ndarray | None
) -> RgbCropEncoder:
    activation, dtype = ACTIVATIONS[network.nonlinearity], PRECISIONS[network.precision].dtype
    is_conv = network.encoder_subtype in CONV_LAYERS
    if is_conv != (network.encoder_type == "conv"):
        raise UserError(
            f"--encoder_subtype={network.encoder_subtype} is not of --encoder_type={network.encoder_type}: "
            f"use --encoder_type={'conv' if is_conv else 'resnet'}."
        )
    # --policy_initialization is of all but the convolutional image encoder, as published.
    stack = (
        ConvStack(network.encoder_subtype, activation, FAN_IN_UNIFORM)
        if is_conv
        else ResNet(activation, initialization)
    )
    return RgbCropEncoder(
        image_stack=stack,
        window=(
            None
            if glyph_table is None
            else make_window(glyph_table, network.obs_subtract_mean, network.obs_scale, dtype)
        ),
        hidden_size=network.hidden_size,
        activation=activation,
        initialization=initialization,
        obs_subtract_mean=network.obs_subtract_mean,
        obs_scale=network.obs_scale,
        dtype=dtype,
    )


def _torchbeast_encoder(
    network: NetworkConfig, initialization: Initialization, glyph_table: np.ndarray | None
) -> TorchbeastEncoder:
    del glyph_table
    return make_torchbeast_encoder(network, initialization, PRECISIONS[network.precision].dtype)


def _mlp_encoder(network: NetworkConfig, initialization: Initialization, glyph_table: np.ndarray | None) -> MlpEncoder:
    del glyph_table
    dtype = PRECISIONS[network.precision].dtype
    return MlpEncoder(network.hidden_size, ACTIVATIONS[network.nonlinearity], initialization, dtype)


_ENCODERS = {
    "nle_rgbcrop_encoder": _rgbcrop_encoder,
    "nle_torchbeast_encoder": _torchbeast_encoder,
    "mlp_encoder": _mlp_encoder,
}
