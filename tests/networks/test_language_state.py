"""A policy that reads captions: their text, or the bits of their key, decide what it does."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.registry import env_spec
from oni_jax.networks.policy import init_params, make_policy
from oni_jax.networks.registry import policy_observations
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import CAPTION


@functools.cache
def applied(root_env: str, encoder: str):
    """Returns a policy's jitted function of observations, and observations that are all 0."""
    network = NetworkConfig(encoder_custom=encoder, hidden_size=16, language_state=True, use_rnn=False)
    spec = env_spec(EnvConfig(root_env=root_env), policy_observations(network))
    policy = make_policy(network, spec)
    observations = {name: jnp.zeros((1, 1, *x.shape), x.dtype) for name, x in spec.observations.items()}
    params, state, is_first = (
        init_params(policy, spec, jax.random.key(0)),
        policy.initial_state(1),
        jnp.ones((1, 1), bool),
    )
    return jax.jit(lambda observations: policy.apply(params, observations, state, is_first)[0].logits), observations


def logits(root_env: str, encoder: str, caption: np.ndarray) -> np.ndarray:
    """Returns the logits of a caption, where all other observations are 0."""
    apply, zeros = applied(root_env, encoder)
    return np.asarray(apply({**zeros, CAPTION: zeros[CAPTION].at[0, 0, : len(caption)].set(caption)}))


@pytest.mark.parametrize("encoder", ["generic_encoder", "mlp_encoder"])
def test_each_bit_of_a_key_is_read(encoder):
    no_bits = logits("CrafterTextEnv-v1", encoder, np.zeros(6, np.uint8))
    found = []
    for bit in range(0, 48, 5):
        key = np.packbits(np.arange(48) == bit)
        found.append(logits("CrafterTextEnv-v1", encoder, key) - no_bits)
        assert np.abs(found[-1]).max() > 1e-4
    # A bit counts as 1 whichever it is, unlike the byte's number
    sizes = [float(np.linalg.norm(x)) for x in found]
    assert max(sizes) < 5 * min(sizes)


def test_a_text_is_read():
    first, second = (np.frombuffer(text, np.uint8) for text in (b"The ball is left.", b"The ball is above."))
    assert (
        np.abs(logits("Catch-v0", "generic_encoder", first) - logits("Catch-v0", "generic_encoder", second)).max()
        > 1e-4
    )


def test_an_encoder_that_reads_no_captions():
    with pytest.raises(UserError, match="--language_state: --encoder_custom bk_encoder can't read it"):
        policy_observations(NetworkConfig(encoder_custom="bk_encoder", language_state=True))
