"""Random network distillation: the formula in NumPy, novelty pays, ends of episodes, devices, settings."""

import dataclasses

import chex
import jax
import numpy as np
import pytest

from oni_jax.envs.registry import env_spec
from oni_jax.learner.shards import shard_score
from oni_jax.networks import ragged
from oni_jax.networks.policy import init_params, make_policy
from oni_jax.networks.registry import policy_observations
from oni_jax.parallel import Replicas
from oni_jax.rewards.registry import check_rewards, make_rewards
from oni_jax.rewards.terms import RewardSum
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.worlds import EnvConfig, GoalConfig
from oni_jax.types import OPEN_GOALS, Trajectory
from tests.rewards.test_conformance import KEY, captions_of, teach, trajectory_of
from tests.support import signals_plugin
from tests.support.processes import equal_on_devices

T, B, GAMMA = 4, 6, 0.99
IMAGES = "BabyAI-Text-GoToLocal-RedBall-S20"


def config_of(name="rnd", root_env="Catch-v0", encoder="mlp_encoder", **settings) -> Config:
    return Config(
        EnvConfig(root_env=root_env),
        network=NetworkConfig(
            encoder_custom=encoder, hidden_size=8, policy_initialization="xavier_uniform", nonlinearity="relu"
        ),
        reward=with_values(RewardConfig(), dict(llm_reward_type=name, llm_reward_coeff=0.1, **settings)),
    )


def make(*names, **settings) -> RewardSum:
    config, *others = [config_of(name, **settings) for name in names or ["rnd"]]
    config = dataclasses.replace(config, others=tuple((term.reward, term.annotation) for term in others))
    check_rewards(config)
    return make_rewards(config, env_spec(config.env))


def steps(seed: int, root_env="Catch-v0", num=B, low=0, high=9, ends=True) -> Trajectory:
    """Observations at random, of all that the environment shows."""
    rng = np.random.default_rng(seed)

    def drawn(length):
        return {
            name: rng.integers(low, x.num_ids or high, (length, num, *x.shape)).astype(x.dtype)
            for name, x in env_spec(EnvConfig(root_env=root_env)).observations.items()
        }

    ended = rng.integers(0, 3, (T, num)) * ends
    zeros = np.zeros((T, num), np.float32)
    return trajectory_of(
        observations=drawn(T + 1),
        final_observations=drawn(T),
        terminations=ended == 1,
        truncations=ended == 2,
        rewards=zeros,
    )


def key_of(number: int) -> np.ndarray:
    return np.array([0, number], np.uint32)


def ends_of(trajectory: Trajectory) -> np.ndarray:
    return np.logical_or(trajectory.terminations, trajectory.truncations)[..., None]


def flat(trajectory: Trajectory) -> np.ndarray:
    """Observations after the steps [T * B, F], in the order in which mlp_encoder reads them."""
    ended, finals = ends_of(trajectory), trajectory.final_observations
    after = {name: np.where(ended, finals[name], x[1:]) for name, x in trajectory.observations.items()}
    return np.concatenate([after[name].reshape(T * B, -1) for name in sorted(after)], axis=1).astype(np.float64)


def dense(x: np.ndarray, layer) -> np.ndarray:
    return x @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"])


def normalised(x: np.ndarray, known: np.ndarray) -> np.ndarray:
    return np.clip((x - known.mean(axis=0)) / np.sqrt(known.var(axis=0) + 1e-8), -5, 5)


def errors(state, x: np.ndarray) -> np.ndarray:
    """target(x) - predictor(x)."""
    outputs = []
    for params in (state.target["params"], state.predictor.params["params"]):
        y = np.maximum(dense(x, params["encoder"]["dense"]), 0)
        for name in ("hidden_0", "hidden_1"):
            y = np.maximum(dense(y, params[name]), 0) if name in params else y
        outputs.append(dense(y, params["output"]))
    return outputs[0] - outputs[1]


def before(trajectory: Trajectory) -> np.ndarray:
    """Observations before the steps [T * B, F], in that order."""
    seen = trajectory.observations
    return np.concatenate([seen[name][:-1].reshape(T * B, -1) for name in sorted(seen)], axis=1).astype(np.float64)


@pytest.mark.parametrize("name, alpha", [("rnd", 0.0), ("noveld", 1.0), ("noveld", 0.5)])
def test_the_formula(name, alpha):
    """Two batches: statistics of the first and of both, and a predictor that has learnt from the first."""
    settings = {"noveld_alpha": alpha} if alpha else {}
    rewards = make(name, rnd_update_proportion=1.0, rnd_learning_rate=1e-2, **settings)
    state, seen, sums, losses = rewards.init(jax.random.key(1)), [], [], []
    score = jax.jit(rewards.score)
    for number in range(2):
        trajectory = steps(number)
        seen.append(flat(trajectory))
        known = np.concatenate(seen)
        x = normalised(seen[-1], known)
        error, earlier = errors(state, x), errors(state, normalised(before(trajectory), known))
        novelty = np.sum(error**2, axis=1) - alpha * np.sum(earlier**2, axis=1)
        curiosity = 0.5 * np.maximum(novelty, 0).reshape(T, B)
        total = np.zeros(B)
        for now in curiosity:
            total = GAMMA * total + now
            sums.append(total)
        expected = curiosity / np.std(sums)
        (given,), after = score(state, trajectory, ({},), key_of(number))
        np.testing.assert_allclose(given, expected, rtol=2e-4, atol=1e-6)
        metrics = rewards.metrics(after)
        assert metrics["loss"] == pytest.approx(np.mean(error**2), rel=1e-4)
        assert metrics["deviation"] == pytest.approx(np.std(sums), rel=1e-4)
        losses.append(np.mean(errors(after, x) ** 2) / np.mean(error**2))
        chex.assert_trees_all_equal(after.target, state.target)
        state = after
        assert name == "rnd" or 0 < np.mean(curiosity == 0) < 1
    assert max(losses) < 0.95  # smaller on what was learnt from


@pytest.mark.slow
@pytest.mark.parametrize("features", ["observations", "policy"])
def test_novelty_pays(features):
    """Eight pictures are seen again and again; then the half of a batch shows others."""
    config = config_of(root_env=IMAGES, encoder="generic_encoder", rnd_features=features, rnd_learning_rate=3e-3)
    config = dataclasses.replace(config, network=dataclasses.replace(config.network, hidden_size=32))
    spec = env_spec(config.env)
    rewards = make_rewards(config, spec)
    params = init_params(make_policy(config.network, spec), spec, jax.random.key(0))
    score, state = jax.jit(rewards.score), rewards.init(jax.random.key(1))
    known = steps(0, IMAGES, num=2, ends=False).observations

    def batch(seed):
        index = np.random.default_rng(seed).integers(0, 8, (T + 1, B))
        shown = {name: x[1:].reshape(8, *x.shape[2:])[index] for name, x in known.items()}
        return steps(seed, IMAGES, ends=False)._replace(observations=shown, policy_params=params)

    for number in range(150):
        output = score(state, batch(number), ({},), key_of(number))
        state = output.state
    later, new = batch(1000), steps(1, IMAGES).observations
    for name, x in later.observations.items():
        x[:, B // 2 :] = new[name][:, B // 2 :]
    (given,), _ = score(state, later, ({},), KEY)
    assert np.median(given[:, B // 2 :]) > 10 * np.median(given[:, : B // 2])


@pytest.mark.parametrize(
    ("name", "settings"), [("rnd", {}), ("noveld", {}), ("apt", {}), ("rnd", {"rnd_features": "policy"})]
)
def test_state_is_no_newer_for_another_open_goal(name, settings):
    config = config_of(name, signals_plugin.NAME, **settings)
    network = dataclasses.replace(config.network, goal_conditioned=True)
    env = dataclasses.replace(config.env, goals=GoalConfig(suggester="oracle"))
    config = dataclasses.replace(config, env=env, network=network)
    spec = env_spec(env, policy_observations(network))
    rewards = make_rewards(config, spec)
    state = rewards.init(jax.random.key(0))
    assert OPEN_GOALS in spec.observations
    rng = np.random.default_rng(0)

    def drawn(length):
        return {x: rng.integers(0, 2, (length, B, *a.shape)).astype(a.dtype) for x, a in spec.observations.items()}

    observations, finals = drawn(T + 1), drawn(T)
    params = init_params(make_policy(network, spec), spec, jax.random.key(1)) if settings else ()
    paid = []
    for goal in (0, 1):
        observations, finals = (
            {**seen, OPEN_GOALS: np.full_like(seen[OPEN_GOALS], goal)} for seen in (observations, finals)
        )
        steps = trajectory_of(observations=observations, final_observations=finals, policy_params=params)
        output = rewards.score(state, steps, rewards.prepare(captions_of([b""])), KEY)
        paid.append(np.asarray(output.rewards))
    assert paid[0].any()
    np.testing.assert_array_equal(paid[0], paid[1])


def test_an_episode_s_end_is_seen_and_not_the_next_one_s_beginning():
    rewards = make()
    state, trajectory = rewards.init(jax.random.key(1)), steps(0)
    ended = ends_of(trajectory)
    assert 0 < ended.mean() < 1

    def given(name, changed_at):
        changed = {key: x.copy() for key, x in getattr(trajectory, name).items()}
        for x in changed.values():
            x[-T:] += changed_at.astype(x.dtype)
        return jax.jit(rewards.score)(state, trajectory._replace(**{name: changed}), ({},), KEY)

    before = given("observations", ended * 0)
    chex.assert_trees_all_equal(given("observations", ended), before)
    chex.assert_trees_all_equal(given("final_observations", ~ended), before)
    assert np.any(given("observations", ~ended).rewards != before.rewards)
    assert np.any(given("final_observations", ended).rewards != before.rewards)


def test_numbers_that_are_nan_show_in_the_state():
    """So that the update is a bad one."""
    rewards, trajectory = make(), steps(0, ends=False)
    trajectory.observations["board"][2, 3] = np.inf
    output = jax.jit(rewards.score)(rewards.init(KEY), trajectory, ({},), KEY)
    assert not all(np.isfinite(x).all() for x in jax.tree.leaves(output.state))


def test_frozen_it_learns_nothing():
    config = config_of()
    rewards = make_rewards(config, env_spec(config.env), frozen=True)
    state = rewards.init(jax.random.key(1))
    given, after = jax.jit(rewards.score)(state, steps(0), ({},), KEY)
    assert np.all(given > 0)
    chex.assert_trees_all_equal(after, state)
    config = config_of(rnd_features="policy")
    with pytest.raises(UserError, match="--rnd_features policy: reads the policy's parameters"):
        make_rewards(config, env_spec(config.env), frozen=True)


@pytest.mark.slow
def test_curiosity_beside_another_reward_equals_curiosity_alone(monkeypatch):
    monkeypatch.setattr(ragged, "LENGTHS", ())  # little to compile
    alone, both = make(), make("rnd", "online_cls_reward_model")
    state, trajectory, captions = both.init(KEY), steps(0), captions_of()
    first, _ = both.states(state)
    chex.assert_trees_all_equal(alone.init(KEY), first)
    given = jax.jit(both.score)(state, trajectory, both.prepare(captions), KEY)
    expected = jax.jit(alone.score)(first, trajectory, ({},), KEY)
    np.testing.assert_array_equal(given.rewards[0], expected.rewards[0])
    # And the gradient steps of the other lose nothing of what it learns meanwhile.
    trained, _ = teach(both, state, 1)
    merged = both.states(both.merge(given.state, trained))
    chex.assert_trees_all_equal(merged[0], expected.state)
    assert {"rnd/loss", "rnd/deviation", "online_cls_reward_model/loss"} <= both.metrics(given.state).keys()


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"rnd_update_proportion": 0.5}, "--rnd_update_proportion 0.5: has no meaning without --llm_reward_type rnd"),
        ({"rnd_features": "policy"}, "--rnd_features policy: has no meaning without --llm_reward_type rnd"),
    ],
)
def test_its_settings_belong_to_it(settings, text):
    with pytest.raises(UserError, match=text):
        make("online_cls", **settings)
    make("online_cls", "rnd", **settings)


def played(replicas: Replicas, features: str):
    """Rewards of five batches, and the last state."""
    config = config_of(rnd_features=features, rnd_learning_rate=1e-3)
    spec = env_spec(config.env)
    rewards = make_rewards(config, spec, replicas)
    params = init_params(make_policy(config.network, spec), spec, jax.random.key(0))
    score = jax.jit(shard_score(rewards, replicas))
    state, given = replicas.put(rewards.init(jax.random.key(1))), []
    for number in range(5):
        output = score(state, steps(number)._replace(policy_params=params), ({},), key_of(number))
        state = output.state
        given.append(output.rewards)
    return jax.device_get((given, state))


def two_devices() -> None:
    for features in ("observations", "policy"):
        one, two = (played(Replicas(jax.devices()[:count]), features) for count in (1, 2))
        chex.assert_tree_all_finite(one)
        chex.assert_trees_all_close(two, one, rtol=1e-3, atol=1e-6)
    print("equal")


@pytest.mark.slow
def test_two_devices_learn_as_one_does():
    equal_on_devices(2, "-c", "from tests.rewards.baselines.test_rnd import two_devices; two_devices()")
