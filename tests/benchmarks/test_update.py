"""The PyTorch peer computes what our update computes; the suite's sizes are counted right."""

import dataclasses
from contextlib import closing

import jax
import numpy as np
import pytest

from benchmarks import samples
from benchmarks.builders import Update, config_of, flops_per_frame
from benchmarks.reward_files import REWARD_TYPES, reward_settings
from oni_jax.envs.registry import env_spec
from oni_jax.learner.compilations import CompilationCounter
from oni_jax.learner.loss import make_loss_fn
from oni_jax.networks.policy import init_params, make_policy
from oni_jax.rewards.registry import check_rewards
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values

BATCH_SIZE = 128


@pytest.fixture(scope="module")
def ours() -> Update:
    """Small, with many short episodes."""
    config = config_of(batch_size=BATCH_SIZE)
    network = dataclasses.replace(config.network, hidden_size=32, policy_initialization="xavier_uniform")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "EPISODE_STEPS", 8)
        built = Update(dataclasses.replace(config, network=network))
    assert built.packed.payload.records.shape[:2] == (config.learner.rollout + 1, BATCH_SIZE // config.learner.rollout)
    return built


def test_the_sample_has_what_the_loss_distinguishes(ours):
    trajectory, batch = ours.loss_inputs()
    assert np.any(trajectory.is_first) and np.any(batch.terminations) and np.any(batch.truncations)
    assert np.any(batch.rewards != 0) and np.any(trajectory.observations["message"])
    assert 0 < np.mean(np.asarray(trajectory.observations["chars"]) == ord(" ")) < 1


def test_the_torch_peer_has_our_loss_and_our_gradients(ours):
    pytest.importorskip("torch")
    from benchmarks.peers.torch_update import TorchUpdate

    peer = TorchUpdate(ours)
    trajectory, batch = ours.loss_inputs()
    loss_fn = make_loss_fn(ours.policy.apply, ours.config.learner, ours.config.reward)
    (loss, _), grads = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(
        ours.state.params, trajectory, np.zeros(batch.rewards.shape, np.float32)
    )
    theirs = peer.loss()
    theirs.backward()
    np.testing.assert_allclose(theirs.item(), loss, rtol=1e-4)
    policy, grads = peer.policy, grads["params"]
    pairs = [
        (policy.convolutions[0].weight.grad.permute(2, 3, 1, 0), grads["encoder"]["image_stack"]["conv_0"]["kernel"]),
        (policy.message[0].weight.grad.T, grads["encoder"]["message_0"]["kernel"]),
        (policy.core.weight_hh.grad.T, grads["core"]["layer_0"]["hidden_kernel"]),
        (policy.core.bias_ih.grad, grads["core"]["layer_0"]["input_bias"]),
        (policy.logits.weight.grad.T, grads["logits"]["kernel"]),
    ]
    for torch_grad, grad in pairs:
        np.testing.assert_allclose(torch_grad.numpy(), grad, rtol=1e-3, atol=1e-5)


def test_flops_of_a_frame():
    config = config_of()
    spec = env_spec(config.env)
    policy = make_policy(config.network, spec)
    params = jax.eval_shape(lambda key: init_params(policy, spec, key), jax.random.key(0))
    forward = 2 * 6.73e6  # multiply-adds of the default policy, counted by hand
    assert 2.5 * forward < flops_per_frame(params, config) < 3 * forward


def test_compilations_are_counted():
    with closing(CompilationCounter()) as compilations:
        jax.jit(lambda x: x * 3)(np.ones(3))
    assert compilations.count >= 1
    with closing(CompilationCounter()) as none:
        pass
    jax.jit(lambda x: x * 5)(np.ones(3))
    assert none.count == 0


@pytest.mark.parametrize("name", REWARD_TYPES)
def test_rewards_that_are_measured_have_what_they_need(name):
    coeff = 0.0 if name == "none" else 0.1
    given = {"llm_reward_type": name, "llm_reward_coeff": coeff, **reward_settings(name)}
    check_rewards(with_values(Config(), given))
