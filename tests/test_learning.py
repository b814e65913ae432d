"""Learning is real: known optima are reached by the parts that play NetHack, and not when one of them is broken."""

import dataclasses
from contextlib import ExitStack

import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.host.runtime import StopRequest
from oni_jax.networks.policy import init_params, make_policy
from oni_jax.settings.config import Config
from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import ActorConfig, EnvConfig
from oni_jax.training import build
from oni_jax.training.parts import USUAL, Makers
from oni_jax.training.plan import resolve
from oni_jax.worlds.actors import actor_world

OPTIMUM = 1.0  # optimum of both environments
REACHED = 0.9


def small_config(tmp_path, root_env: str, env_steps: int, pool: str = "serial") -> Config:
    return Config(
        env=EnvConfig(root_env=root_env, plugin="tests.support.memory_env"),
        actors=ActorConfig(num_workers=2, num_envs_per_worker=32, actor_pool=pool),
        network=NetworkConfig(encoder_custom="mlp_encoder", hidden_size=64),
        learner=LearnerConfig(batch_size=512, rollout=16, recurrence=16, learning_rate=2e-3, gamma=0.95),
        reward=RewardConfig(llm_reward_type="none"),
        run=RunConfig(train_dir=str(tmp_path), experiment="run", train_for_env_steps=env_steps, save_every_sec=0),
    )


def trained_return(config: Config, tmp_path, makers: Makers = USUAL) -> float:
    """Mean return of the last `stats_avg` training episodes."""
    with ExitStack() as stack:
        training = build.build_training(resolve(config), str(tmp_path), stack, makers=makers)
        training.train(StopRequest())
        return training.summary()["mean_return"]


def break_trajectories(monkeypatch, broken) -> None:
    """Lets the learner see `broken(trajectory)`."""
    make_unpack_fn = actor_world.make_unpack_fn

    def make(*args):
        unpack = make_unpack_fn(*args)
        return lambda batch, version: broken(unpack(batch, version))

    monkeypatch.setattr(actor_world, "make_unpack_fn", make)


@pytest.mark.slow
def test_catch_is_learnt_in_bfloat16(tmp_path):
    config = small_config(tmp_path, "Catch-v0", 300_000)
    config = dataclasses.replace(config, network=dataclasses.replace(config.network, precision="bfloat16"))
    assert trained_return(config, tmp_path) > REACHED * OPTIMUM


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["serial", "process"])
def test_catch_is_learnt(tmp_path, pool):
    config = small_config(tmp_path, "Catch-v0", 200_000, pool)
    assert trained_return(config, tmp_path) > REACHED * OPTIMUM


@pytest.mark.slow
def test_catch_is_unlearnt_with_the_sign_of_the_reward_flipped(tmp_path, monkeypatch):
    break_trajectories(monkeypatch, lambda trajectory: trajectory._replace(rewards=-trajectory.rewards))
    assert trained_return(small_config(tmp_path, "Catch-v0", 150_000), tmp_path) < -0.5


@pytest.mark.slow
def test_catch_is_not_learnt_with_actions_shuffled(tmp_path, monkeypatch):
    def shuffled(trajectory):
        shuffle = np.random.default_rng(0).permutation(trajectory.actions.shape[1])
        return trajectory._replace(actions=trajectory.actions[:, shuffle])

    break_trajectories(monkeypatch, shuffled)
    assert trained_return(small_config(tmp_path, "Catch-v0", 150_000), tmp_path) < 0.5


class NeverReset:
    """A policy that carries its memory over the ends of episodes."""

    def __init__(self, policy):
        self._policy = policy
        self.initial_state, self.encoder = policy.initial_state, policy.encoder

    def apply(self, params, observations, core_state, is_first):
        return self._policy.apply(params, observations, core_state, jnp.zeros_like(is_first))


@pytest.mark.slow
def test_memory_is_learnt(tmp_path):
    assert trained_return(small_config(tmp_path, "Memory-v0", 100_000), tmp_path) > REACHED * OPTIMUM


@pytest.mark.slow
def test_memory_is_not_learnt_when_the_state_is_not_reset(tmp_path):
    makers = Makers(
        policy=lambda *args: NeverReset(make_policy(*args)),  # type: ignore[arg-type]
        params=lambda policy, *args: init_params(policy._policy, *args),
    )
    assert trained_return(small_config(tmp_path, "Memory-v0", 100_000), tmp_path, makers) < REACHED * OPTIMUM


@pytest.mark.slow
def test_memory_is_not_learnt_without_a_recurrent_core(tmp_path):
    config = small_config(tmp_path, "Memory-v0", 100_000)
    config = dataclasses.replace(config, network=dataclasses.replace(config.network, use_rnn=False))
    assert trained_return(config, tmp_path) < 0.5
