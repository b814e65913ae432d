"""A run begins with an earlier run's policy, or is guided by it."""

import dataclasses
from contextlib import ExitStack

import jax
import numpy as np
import pytest

from oni_jax.learner.guidance import Guidance
from oni_jax.networks.guided import GuidedPolicy
from oni_jax.networks.policy import policy_and_shapes
from oni_jax.runs.checkpointing import restore_params
from oni_jax.runs.plan import Plan
from oni_jax.runs.pretrained import make_actor
from oni_jax.settings.config import Config, check_config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.learning import NetworkConfig, PretrainedConfig
from oni_jax.training import build
from oni_jax.training.plan import resolve
from tests.evaluation.runs import write_run
from tests.support import signals_plugin
from tests.worlds.device.device_worlds import CONFIG, N, T, collect, make_world

OTHER = {
    "root_env": signals_plugin.NAME,
    "max_episode_steps": 6,
    "encoder_custom": "mlp_encoder",
    "hidden_size": 16,
    "llm_reward_type": "none",
}


def config_of(network: NetworkConfig = CONFIG.network, **pretrained) -> Config:
    return dataclasses.replace(CONFIG, network=network, pretrained=PretrainedConfig(**pretrained))


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A run's folder, and its settings."""
    folder = tmp_path_factory.mktemp("runs") / "earlier"
    return str(folder), write_run(folder, OTHER)


def softmax(logits: np.ndarray) -> np.ndarray:
    unnormalised = np.exp(logits - logits.max(-1, keepdims=True))
    return unnormalised / unnormalised.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    "steps, probability", [pytest.param(0, 0.3, marks=pytest.mark.slow), (1000, 0.3 * (1 - 2 * N * T / 1000))]
)
def test_a_guided_policy_acts_by_the_mixture_and_says_so(earlier, steps, probability):
    folder, other = earlier
    config = config_of(guide=folder, guide_prob=0.3, guide_steps=steps)
    world, task, state = make_world(config)
    world.start()
    actor = make_actor(config, task.policy, world._replicas)
    world.publish(
        2, Guidance(config.pretrained, N * T, actor.params_of, env_steps=2 * N * T).acting_params(state.params)
    )
    batches = [jax.device_get(batch.payload) for batch in collect(world, 40)]
    guide, shapes = policy_and_shapes(other.network, task.spec)
    _, guide_params = restore_params(f"{folder}/checkpoints", shapes)
    applied = [jax.jit(policy.apply) for policy in (task.policy, guide)]
    num_first, expected = 0, 0.0
    for payload in batches:
        states = payload.initial_core_state
        each = zip(applied, (jax.device_get(state.params), guide_params), states)
        output, advice = (
            jax.device_get(apply(params, payload.observations, core, payload.is_first)[0])
            for apply, params, core in each
        )
        mixture = (1 - probability) * softmax(output.logits[:T]) + probability * softmax(advice.logits[:T])
        np.testing.assert_allclose(softmax(payload.behaviour_logits), mixture, rtol=1e-4)
        np.testing.assert_allclose(payload.values, output.values[:T], rtol=1e-4, atol=1e-5)
        assert np.abs(softmax(output.logits) - softmax(advice.logits)).max() > 0.05
        num_first += int((payload.actions == 0).sum())
        expected += float(mixture[..., 0].sum())
    assert abs(num_first - expected) < 4 * np.sqrt(40 * N * T / 4)


def test_a_guide_that_has_had_its_steps_is_computed_no_more(earlier):
    _, other = earlier
    policy, shapes = policy_and_shapes(other.network, Plan(other).world_spec)
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    broken = jax.tree.map(lambda x: np.full(x.shape, np.nan, x.dtype), shapes)
    spec = Plan(other).world_spec
    shown = {name: np.zeros((1, N, *x.shape), x.dtype) for name, x in spec.observations.items()}
    guided = GuidedPolicy(policy, policy)
    for probability in (0.0, 0.5):
        given = (params, broken, np.float32(probability))
        output, _ = jax.jit(guided.apply)(given, shown, guided.initial_state(N), np.ones((1, N), np.float32))
        assert np.isfinite(output.logits).all() == (probability == 0)


@pytest.mark.parametrize("kind", ["guide", "init_from"])
def test_training(earlier, tmp_path, kind):
    folder, other = earlier
    network = other.network if kind == "init_from" else CONFIG.network
    config = config_of(network, **{kind: folder})
    with ExitStack() as stack:
        training = build.build_training(resolve(config), str(tmp_path), stack)
        learner = training.learner
        _, shapes = policy_and_shapes(network, Plan(config).world_spec)
        if kind == "init_from":
            _, saved = restore_params(f"{folder}/checkpoints", shapes)
            jax.tree.map(np.testing.assert_array_equal, learner.state.params, saved)
        learner._world.start()
        metrics = [learner.step() for _ in range(3)]
        assert all(row and np.isfinite(row["loss/loss"]) and not row["loss/bad_update"] for row in metrics)
        # The learning policy's probabilities differ from those that acted where a guide has its part in them
        assert metrics[0] and (metrics[0]["loss/ratio_min"] < 0.99) == (kind == "guide")


def test_the_guide_s_probability():
    settings = PretrainedConfig(guide="run", guide_prob=0.5, guide_steps=200)
    found = [Guidance(settings, env_steps=steps).guide_probability for steps in (0, 50, 200, 300)]
    assert found == [0.5, 0.375, 0.0, 0.0]
    assert Guidance(dataclasses.replace(settings, guide_steps=0), env_steps=10**9).guide_probability == 0.5


def test_steps_without_learning_count_too():
    settings = PretrainedConfig(guide="run", guide_prob=0.5, guide_steps=200, train_after_reward=True)
    guidance = Guidance(settings, batch_size=50)
    assert not guidance.take(0.0) and not guidance.take(float("nan")) and guidance.guide_probability == 0.25


@pytest.mark.parametrize("batch_size", [400, 1600, 8192, 10_000])
def test_a_single_reward_is_the_first(batch_size):
    guidance = Guidance(PretrainedConfig(train_after_reward=True), batch_size)
    assert not guidance.take(0.0) and guidance.take(float(np.float32(1 / batch_size)))


def test_guidance_falls_from_the_first_reward_on():
    settings = PretrainedConfig(guide="run", guide_prob=0.5, guide_steps=200, decay_after_reward=True)
    guidance, found = Guidance(settings, batch_size=50), []
    for mean_reward in (0.0, 0.01, 0.01, 0.0, 0.0):
        assert guidance.take(mean_reward)
        found.append(guidance.guide_probability)
    assert found == [0.5, 0.5, 0.375, 0.25, 0.125]
    assert guidance.take(-1.0) and guidance.guide_probability == 0.0  # penalties do not undo it
    saved = {"env_steps": 250, "reward_sum": guidance.reward_sum, "steps_before": guidance.steps_before}
    assert Guidance(settings, 50, **saved).guide_probability == 0.125


def test_no_learning_before_the_first_reward(tmp_path):
    reward = dataclasses.replace(CONFIG.reward, extrinsic_reward_coeff=0.02)  # several batches bring the sum above 1
    config = dataclasses.replace(CONFIG, pretrained=PretrainedConfig(train_after_reward=True), reward=reward)
    with ExitStack() as stack:
        training = build.build_training(resolve(config), str(tmp_path), stack)
        learner, guidance = training.learner, training.learner.guidance
        learner._world.start()
        first, before = jax.device_get((learner.state.params, learner.state.opt_state)), 0
        while guidance.reward_sum < 1:
            jax.tree.map(np.testing.assert_array_equal, (learner.state.params, learner.state.opt_state), first)
            assert learner.version == 0 and learner.step() and (before := before + 1) < 200
        assert before > 1 and learner.version == 1
        assert not np.array_equal(jax.tree.leaves(learner.state.params)[0], jax.tree.leaves(first)[0])


@pytest.mark.parametrize(
    "settings, error",
    [
        (PretrainedConfig(guide_steps=5), "--guide_steps 5: has no meaning without --guide"),
        (PretrainedConfig(guide="run", decay_after_reward=True), "--decay_after_reward: nothing falls; say over how"),
    ],
)
def test_settings_that_do_nothing_are_refused(settings, error):
    with pytest.raises(UserError, match=error):
        check_config(dataclasses.replace(CONFIG, pretrained=settings))


@pytest.mark.parametrize("kind", ["guide", "init_from"])
def test_a_run_that_does_not_fit(earlier, tmp_path, kind):
    def start(config: Config) -> None:
        with ExitStack() as stack:
            build.build_training(resolve(config), str(tmp_path / "new"), stack)

    with pytest.raises(UserError, match="nowhere/config.json can't be read"):
        start(config_of(CONFIG.network, **{kind: str(tmp_path / "nowhere")}))
    if kind == "init_from":
        with pytest.raises(UserError, match="--hidden_size 8: --init_from .* was trained with 16; give that"):
            start(config_of(init_from=earlier[0]))
        with pytest.raises(UserError, match="--obs_scale 255.0: --init_from .* was trained with 1.0; give that"):
            start(config_of(with_values(CONFIG.network, {"hidden_size": 16, "obs_scale": 255.0}), init_from=earlier[0]))
    write_run(tmp_path / "catch", {"root_env": "Catch-v0", "encoder_custom": "mlp_encoder", "hidden_size": 8})
    with pytest.raises(UserError, match="Signals-v0 as chosen has other actions .* than Catch-v0, on which catch"):
        start(config_of(CONFIG.network, **{kind: str(tmp_path / "catch")}))
