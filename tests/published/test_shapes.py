"""Settings read off parameters: those that the golden networks were recorded with, and those of fresh networks."""

import jax
import jax.numpy as jnp
import pytest

from oni_jax.envs import nethack
from oni_jax.envs.registry import env_spec
from oni_jax.networks.policy import init_params, make_policy
from oni_jax.published.published import import_params
from oni_jax.published.shapes import encoder_settings, policy_settings
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.learning import NetworkConfig, RgbcropConfig, TorchbeastConfig
from oni_jax.settings.worlds import EnvConfig
from tests.published.test_published import golden_weights

RGBCROP = "nle_rgbcrop_encoder"
NETWORKS = {
    "defaults": NetworkConfig(RGBCROP, hidden_size=16),
    "impala": NetworkConfig(
        RGBCROP, hidden_size=16, rnn_type="lstm", rnn_num_layers=2, rgbcrop=RgbcropConfig(subtype="convnet_impala")
    ),
    "without a core": NetworkConfig(RGBCROP, hidden_size=16, use_rnn=False),
    "message": NetworkConfig(
        hidden_size=16, encoder_custom="nle_torchbeast_encoder", torchbeast=TorchbeastConfig(hidden_dim=24)
    ),
    "statistics": NetworkConfig(
        encoder_custom="nle_torchbeast_encoder",
        torchbeast=TorchbeastConfig(msg_model="none", use_blstats=True, embedding_dim=8),
    ),
    "everything": NetworkConfig(
        encoder_custom="nle_torchbeast_encoder",
        torchbeast=TorchbeastConfig(
            msg_model="lt_cnn_small",
            use_blstats=True,
            use_crop=True,
            use_glyphs=True,
            crop_dim=7,
            num_layers=3,
            embedding_dim=8,
        ),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_policy_tells_its_settings(name):
    network = NETWORKS[name]
    spec = env_spec(EnvConfig(), nethack.OBSERVATIONS)
    policy = make_policy(network, spec)
    params = jax.eval_shape(lambda key: init_params(policy, spec, key), jax.random.key(0))
    assert with_values(NetworkConfig(), dict(**policy_settings(params))) == network


def test_golden_networks_tell_their_settings():
    assert policy_settings(import_params(golden_weights("policy_and_loss"))) == {
        "encoder_custom": "nle_rgbcrop_encoder",
        "encoder_type": "conv",
        "encoder_subtype": "convnet_simple",
        "hidden_size": 32,
        "use_rnn": True,
        "rnn_type": "gru",
        "rnn_num_layers": 1,
    }
    everything = encoder_settings(import_params(golden_weights("torchbeast_all")))
    assert everything == {
        "encoder_hidden_dim": 32,
        "encoder_embedding_dim": 8,
        "encoder_num_layers": 2,
        "encoder_crop_dim": 16,
        "encoder_msg_model": "lt_cnn",
        "use_blstats": True,
        "use_crop": True,
        "use_glyphs": True,
    }


def test_networks_of_other_shapes_are_refused():
    params = import_params(golden_weights("policy_and_loss"))
    tree = params["params"]
    tree["encoder"]["image_stack"]["conv_1"]["kernel"] = jnp.zeros((5, 5, 32, 64))
    with pytest.raises(UserError, match=r"unknown network: .*\(64, 5\)"):
        policy_settings(params)
    params = import_params(golden_weights("policy_and_loss"))
    params["params"]["core"]["layer_0"]["hidden_kernel"] = jnp.zeros((32, 64))
    with pytest.raises(UserError, match="32 units with 64 gates"):
        policy_settings(params)
