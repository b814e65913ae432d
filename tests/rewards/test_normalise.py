"""Thresholds, normalisation and quantiles of raw rewards; and refused settings."""

import dataclasses
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.registry import env_spec
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.ops.moments import initial_moments
from oni_jax.rewards.combine import Paid
from oni_jax.rewards.oni.classification import ClassificationScorer
from oni_jax.rewards.oni.motif import MotifScorer
from oni_jax.rewards.oni.ranking import RankingScorer, RankingState
from oni_jax.rewards.oni.reward_model import QUANTILES, RewardModel
from oni_jax.rewards.registry import RewardContext, check_rewards, make_rewards, threshold
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.learning import NetworkConfig, TorchbeastConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import Trajectory

RAW = np.random.default_rng(0).normal(2.0, 3.0, (8, 5)).astype(np.float32)
NETWORK = NetworkConfig(torchbeast=TorchbeastConfig(msg_model="lt_cnn_small", hidden_dim=16))
SPEC = env_spec(EnvConfig(root_env="NetHackScore-v1"))


def test_classes():
    probabilities = jnp.array([0.2, 0.5, 0.51, 0.9])
    cases: tuple[tuple[dict[str, Any], list[float]], ...] = (
        ({}, [0, 0, 1, 1]),
        ({"classification_threshold": 0.8}, [0, 0, 0, 1]),
        ({"llm_reward_value": "probability"}, [0.2, 0.5, 0.51, 0.9]),
    )
    for settings, expected in cases:
        reward = ClassificationScorer(with_values(RewardConfig(), settings), "lt_cnn_small", 1)
        np.testing.assert_allclose(reward.normalise(cast(Any, None), probabilities), expected, rtol=1e-6)


def ranking(**settings) -> RankingScorer:
    config = Config(
        network=NETWORK, reward=with_values(RewardConfig(), dict(llm_reward_type="online_motif", **settings))
    )
    return RankingScorer(RewardContext(config, SPEC), make_ranking_network(NETWORK), threshold(config))


def scored(reward, monkeypatch, raw, state):
    monkeypatch.setattr(reward, "raw_values", lambda *_: jnp.asarray(raw))
    trajectory = Trajectory(**{**dict.fromkeys(Trajectory._fields), "before_counts": np.ones_like(raw)})  # type: ignore
    return Paid(reward, "before").score(
        state, trajectory, {"caption_index": jnp.zeros(raw.shape, jnp.int32)}, cast(Any, None)
    )


@pytest.mark.parametrize("eps", ["", "0.3"])
def test_a_batch_is_added_to_the_moments_before_it_is_normalised(eps, monkeypatch):
    reward, state = ranking(eps_threshold_quantile=eps), RankingState(cast(Any, ()), initial_moments())
    first = scored(reward, monkeypatch, RAW, state)
    second = scored(reward, monkeypatch, RAW + 1, first.state)
    seen = np.concatenate([RAW.ravel(), RAW.ravel() + 1]).astype(np.float64)
    normalised = (RAW + 1 - seen.mean()) / seen.std(ddof=1)
    expected = np.where(normalised > float(eps or -0.5), normalised, 0)
    np.testing.assert_allclose(second.rewards, expected, rtol=2e-2, atol=2e-2)
    assert (np.asarray(second.rewards) == 0).sum() == (expected == 0).sum() > 5
    assert second.state.moments.count == pytest.approx(80, abs=0.01)


def test_raw_scores_are_given_without_normalisation(monkeypatch):
    state = RankingState(cast(Any, ()), initial_moments())
    output = scored(ranking(rew_norm=False), monkeypatch, RAW, state)
    np.testing.assert_array_equal(output.rewards, RAW)
    assert output.state.moments.count > 39  # still kept, for when it is switched on


MODEL = RewardModel(NETWORK, {}, mean=2.0, variance=9.0, quantiles={share: share - 0.5 for share in QUANTILES})


@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.95])
def test_the_offline_reward_is_normalised_as_in_its_training(quantile):
    reward = MotifScorer(RewardConfig(), SPEC, MODEL, quantile)
    normalised = (RAW - 2.0) / 3.0
    expected = np.where(normalised > quantile - 0.5, normalised, 0)
    np.testing.assert_allclose(reward.normalise((), jnp.asarray(RAW)), expected, rtol=1e-4, atol=1e-6)
    raw = MotifScorer(RewardConfig(rew_norm=False), SPEC, MODEL, quantile)
    np.testing.assert_array_equal(raw.normalise((), jnp.asarray(RAW)), RAW)


def test_a_reward_that_is_no_number_is_not_hidden_behind_a_threshold():
    rewards = [
        (ClassificationScorer(RewardConfig(), "lt_cnn_small", 1), cast(Any, None)),
        (ranking(), RankingState(cast(Any, ()), initial_moments())),
        (MotifScorer(RewardConfig(), SPEC, MODEL, 0.5), ()),
    ]
    for reward, state in rewards:
        np.testing.assert_array_equal(np.isnan(reward.normalise(state, jnp.array([1.0, np.nan]))), [False, True])  # type: ignore


def test_only_quantiles_that_were_saved_are_known():
    with pytest.raises(UserError, match=r"--eps_threshold_quantile 0.51: .* one of 0.05, 0.1, .*, 0.95$"):
        MotifScorer(RewardConfig(), SPEC, MODEL, 0.51)


@pytest.mark.parametrize(("name", "default"), [("motif", 0.5), ("online_motif", -0.5), ("cosine-bow", 0.0)])
def test_the_threshold_s_default_is_the_type_s(name, default):
    config = Config(reward=RewardConfig(llm_reward_type=name))
    assert threshold(config) == default
    given = dataclasses.replace(config.reward, eps_threshold_quantile="-1.5")
    assert threshold(dataclasses.replace(config, reward=given)) == -1.5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"llm_reward_type": ""}, "must be given; use one of none, online_cls"),
        ({"llm_reward_type": "offline"}, "'offline' is not known; use one of none, online_cls"),
        ({"llm_reward_type": "none", "llm_reward_coeff": 0.1}, "needs --llm_reward_coeff 0, not 0.1"),
        ({"llm_reward_type": "online_motif", "llm_reward_coeff": 0.0}, "needs --llm_reward_coeff above 0"),
        ({"llm_reward_type": "motif"}, "needs --reward_dir"),
        ({"llm_reward_type": "cosine-bow"}, "--word_vectors"),
        ({"llm_reward_type": "cosine-bow"}, "fasttext.cc"),
        ({"llm_reward_type": "online_cls", "reward_dir": "x"}, "--reward_dir x: has no meaning"),
        ({"llm_reward_type": "online_cls", "eps_threshold_quantile": "0.5"}, "has no meaning"),
        ({"llm_reward_type": "online_motif", "eps_threshold_quantile": "high"}, "must be a number"),
        ({"llm_reward_type": "online_motif", "eps_threshold_quantile": "nan"}, "must be a number"),
        ({"llm_reward_type": "online_motif", "llm_reward_value": "probability"}, "not offered"),
    ],
)
def test_settings_that_can_not_be_are_refused_in_a_line(settings, words):
    values = {"llm_reward_coeff": 0.1, **settings}
    with pytest.raises(UserError) as error:
        check_rewards(Config(reward=with_values(RewardConfig(), values)))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_missing_parts_of_the_environment_or_the_network_are_named():
    glyphs = with_values(NETWORK, {"use_glyphs": True})
    reward = RewardConfig(llm_reward_type="online_motif", llm_reward_coeff=0.1)
    with pytest.raises(UserError, match="reads glyphs, which"):
        make_rewards(Config(network=glyphs, reward=reward), SPEC)
    mute = NetworkConfig(torchbeast=TorchbeastConfig(msg_model="none"))
    with pytest.raises(UserError, match="sees nothing"):
        make_rewards(Config(network=mute, reward=reward), SPEC)
    reward = dataclasses.replace(reward, llm_reward_type="online_cls_reward_model")
    with pytest.raises(UserError, match="--encoder_msg_model none"):
        make_rewards(Config(network=mute, reward=reward), SPEC)
