"""Shaping by a Preference Transformer: each state's potential is that of the steps of its episode that led to it."""

import jax
import numpy as np
import pytest

from oni_jax.envs.registry import env_spec
from oni_jax.rewards.bk import bk_pref
from oni_jax.rewards.bk.preference_model import make_network, save_preference_model
from oni_jax.rewards.registry import check_rewards, observations_read
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from tests.rewards.bk.preference_models import HORIZON, untrained
from tests.rewards.bk.test_bk_code import GAMMA, run, shaped
from tests.support import signals_plugin
from tests.worlds.device.device_worlds import CONFIG, N, T


@pytest.fixture(scope="module")
def model():
    return untrained(signals_plugin.NAME)


@pytest.fixture(scope="module")
def phi(model):
    """The value of the last step, by the whole network on the window alone."""
    spec = env_spec(CONFIG.env)
    network = make_network(model.settings, spec)
    apply = jax.jit(network.apply)

    def value(signals: list[float], actions: list[int]) -> float:
        now = len(signals) - 1
        past = np.array(([signals[0]] * HORIZON + signals)[-1 - HORIZON : -1])
        taken = np.array(([-1] * HORIZON + actions)[-HORIZON:], np.int32)
        times = np.maximum(np.arange(now - HORIZON, now), 0).astype(np.int32)
        shown = {"signal": past[:, None], "parity": past % 2}
        states = {
            name: shown[name].reshape(1, HORIZON, *spec.observations[name].shape).astype(spec.observations[name].dtype)
            for name in shown
        }
        return float(apply(model.params, states, taken[None], times[None]).values[0, -1])

    return value


def config_of(folder, model, **settings) -> Config:
    if not (folder / "reward_model").exists():
        save_preference_model(str(folder), 1, model, {})
    bk_pref._trained_preferences.cache_clear()
    return shaped("bk-pref", folder, **{"potential_horizon": HORIZON, **settings})


def test_shaping_adds_up_to_the_first_and_the_last_potential(tmp_path, model, phi):
    episodes, *_ = run(config_of(tmp_path, model), 5, phi)
    assert {terminated for *_, terminated in episodes.ended} == {True, False} and len(episodes.ended) > N
    assert np.std(episodes.values) > 0.01
    for found, expected, _ in episodes.ended:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_published_shaping_sees_the_same_potentials(tmp_path, model, phi):
    """Its first rollout: F = (gamma phi(t) - phi(t-1)) / sigma, from 0 on."""
    episodes, _, (paid,) = run(config_of(tmp_path, model, potential_shaping="published"), 1, phi)
    values = np.concatenate([np.zeros((1, N)), np.reshape(episodes.values, (T, N))])
    expected = GAMMA * values[1:] - values[:-1]
    scale = np.sum(expected * paid) / np.sum(paid * paid)
    np.testing.assert_allclose(paid * scale, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"reward_dir": ""}, "needs --reward_dir, the folder that launch.train_potential wrote"),
        ({"reward_dir": "/nowhere"}, "/nowhere: holds no Preference Transformer"),
        ({"potential_horizon": 5}, "was trained on segments of 2 steps; give --potential_horizon 2"),
    ],
)
def test_bad_settings(tmp_path, model, settings, problem):
    config = config_of(tmp_path, model, **settings)
    with pytest.raises(UserError, match=problem) as refused:
        check_rewards(config)
        observations_read(config)
    assert "\n" not in str(refused.value)


def test_model_of_another_environment_is_rejected(tmp_path, model):
    settings = model.settings._replace(num_actions=model.settings.num_actions + 1)
    save_preference_model(str(tmp_path), 1, model._replace(settings=settings), {})
    with pytest.raises(UserError, match="was trained with .* actions, and"):
        observations_read(config_of(tmp_path, model))
