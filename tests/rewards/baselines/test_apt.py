"""Distances to neighbours as a reward: the formula in NumPy, what is learnt, devices, settings."""

import dataclasses

import chex
import jax
import numpy as np
import pytest

from oni_jax.envs.registry import env_spec
from oni_jax.learner.shards import shard_score
from oni_jax.parallel import Replicas
from oni_jax.rewards.registry import check_rewards, make_rewards
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.types import Trajectory
from tests.rewards.baselines import test_rnd
from tests.rewards.baselines.test_rnd import B, T, before, dense, flat, key_of, normalised
from tests.support.processes import equal_on_devices

NUM_ACTIONS = 3


def config_of(**settings) -> Config:
    return test_rnd.config_of("apt", **settings)


def steps(seed: int) -> Trajectory:
    actions = np.random.default_rng(seed + 100).integers(NUM_ACTIONS, size=(T, B)).astype(np.int32)
    return test_rnd.steps(seed)._replace(actions=actions)


def embed(params, x: np.ndarray) -> np.ndarray:
    hidden = np.maximum(dense(x, params["params"]["encoder"]["dense"]), 0)
    return dense(hidden, params["params"]["embedding"]["output"])


@pytest.mark.parametrize("neighbours", [1, 3, 100])
def test_the_formula(neighbours):
    """Two batches: each of their steps is a particle."""
    config = config_of(apt_neighbours=neighbours, apt_update_proportion=1.0, apt_learning_rate=1e-2)
    rewards = make_rewards(config, env_spec(config.env))
    state, score, seen, means = rewards.init(jax.random.key(1)), jax.jit(rewards.score), [], []
    for number in range(2):
        trajectory = steps(number)
        seen.append(flat(trajectory))
        known = np.concatenate(seen)
        embedded = embed(state.model.params, normalised(seen[-1], known))
        distances = np.linalg.norm(embedded[:, None] - embedded[None], axis=-1)
        np.fill_diagonal(distances, np.inf)
        nearest = np.sort(distances, axis=1)[:, : min(neighbours, T * B - 1)].mean(axis=1)
        means.append(nearest.mean())
        (given,), after = score(state, trajectory, ({},), key_of(number))
        np.testing.assert_allclose(given.reshape(-1), np.log1p(nearest / np.mean(means)), rtol=2e-3, atol=1e-4)

        def logits(params, trajectory: Trajectory = trajectory, known: np.ndarray = known) -> np.ndarray:
            x = [embed(params, normalised(part, known)) for part in (before(trajectory), seen[-1])]
            hidden = np.maximum(dense(np.concatenate(x, axis=1), params["params"]["hidden"]), 0)
            return dense(hidden, params["params"]["output"])

        def loss(params, trajectory: Trajectory = trajectory) -> float:
            x = logits(params)
            log_sum = np.log(np.exp(x).sum(axis=1))
            return float(np.mean(log_sum - x[np.arange(T * B), trajectory.actions.reshape(-1)]))

        metrics = rewards.metrics(after)
        assert metrics["loss"] == pytest.approx(loss(state.model.params), rel=1e-3)
        actions = trajectory.actions.reshape(-1)
        assert metrics["accuracy"] == pytest.approx(np.mean(logits(state.model.params).argmax(axis=1) == actions))
        assert metrics["distance"] == pytest.approx(np.mean(means), rel=1e-3)
        assert loss(after.model.params) < loss(state.model.params)
        state = after


def test_rare_observations_pay():
    config = config_of(apt_neighbours=2)
    rewards = make_rewards(config, env_spec(config.env))
    trajectory = test_rnd.steps(0, ends=False)._replace(actions=np.zeros((T, B), np.int32))
    for x in trajectory.observations.values():
        x[:, : B - 1] = x[:1, :1]
    (given,), _ = jax.jit(rewards.score)(rewards.init(jax.random.key(1)), trajectory, ({},), key_of(0))
    assert given[:, -1].min() > 10 * given[:, :-1].max()


def test_frozen_it_learns_nothing():
    config = config_of()
    rewards = make_rewards(config, env_spec(config.env), frozen=True)
    state = rewards.init(jax.random.key(1))
    _, after = jax.jit(rewards.score)(state, steps(0), ({},), key_of(0))
    chex.assert_trees_all_equal(after, state)


def test_its_settings_belong_to_it():
    config = test_rnd.config_of("rnd", apt_neighbours=3)
    with pytest.raises(UserError, match="--apt_neighbours 3: has no meaning without --llm_reward_type apt"):
        check_rewards(config)
    others = ((config_of(apt_neighbours=3).reward, config.annotation),)
    check_rewards(dataclasses.replace(test_rnd.config_of("rnd"), others=others))


def played(replicas: Replicas):
    """Rewards of four batches, and the last state."""
    config = config_of(apt_neighbours=3, apt_particles=10, apt_learning_rate=1e-3)
    rewards = make_rewards(config, env_spec(config.env), replicas)
    score = jax.jit(shard_score(rewards, replicas))
    state, given = replicas.put(rewards.init(jax.random.key(1))), []
    for number in range(4):
        output = score(state, steps(number), ({},), key_of(number))
        state = output.state
        given.append(output.rewards)
    return jax.device_get((given, state))


def two_devices() -> None:
    one, two = (played(Replicas(jax.devices()[:count])) for count in (1, 2))
    chex.assert_tree_all_finite(one)
    chex.assert_trees_all_close(two, one, rtol=2e-3, atol=1e-4)
    print("equal")


def test_two_devices_learn_as_one_does():
    equal_on_devices(2, "-c", "from tests.rewards.baselines.test_apt import two_devices; two_devices()")
