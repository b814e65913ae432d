"""Environments by name."""

import numpy as np
import pytest

from oni_jax.envs import catch
from oni_jax.envs.registry import env_spec, environment_names, make_vector_env, register_environment
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import CrafterConfig, EnvConfig
from oni_jax.types import EVERYTHING
from tests.envs.outputs import step_output

NAMES = environment_names()
# Device environments are compiled, and tests/test_conformance.py plays one of each family: one here
COMPILED_ALIKE = {name for name in NAMES if name.startswith(("BabyAI", "Crafter"))} - {
    "BabyAI-Text-GoToLocal-RedBall-S20"
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in COMPILED_ALIKE else ()) for name in NAMES]
)
def test_the_spec_is_that_of_the_environment(name):
    config = EnvConfig(root_env=name, crafter=CrafterConfig(map_stock=16))
    env = make_vector_env(config, num_envs=2, seed=1, first_index=0)
    out = step_output(env)
    env.reset(out)
    env.step(np.zeros(2, np.int32), out)
    env.close()
    spec = env_spec(config)
    assert spec == env.spec
    assert all(out.texts.captions) or not spec.has_captions or name.startswith("NetHack")  # NetHack may say nothing
    assert spec.episode_stats[:2] == ("return", "length")


def test_only_what_is_asked_for_is_shown():
    config = EnvConfig(root_env="NetHackScore-v1")
    unasked = env_spec(config).observations
    assert list(unasked) == ["chars", "colors", "vector_obs", "message"]
    assert list(env_spec(config, (EVERYTHING, "glyphs")).observations) == [*unasked, "glyphs"]
    env = make_vector_env(config, 1, 1, 0, ("hero_xy", "message"))
    out = step_output(env)
    env.reset(out)
    env.close()
    assert list(env.spec.observations) == ["message", "hero_xy"] and out.records["hero_xy"].all()
    assert "chars" not in (out.records.dtype.names or ()) and out.texts.captions[0]
    board = make_vector_env(EnvConfig(root_env="Catch-v0"), 2, 1, 0, ("board",))
    out = step_output(board)
    board.reset(out)
    assert out.records["board"].sum() == 4 and "message" not in (out.records.dtype.names or ())


def test_an_observation_that_is_not_there():
    with pytest.raises(UserError, match="Catch-v0 does not show glyphs.* mlp_encoder"):
        env_spec(EnvConfig(root_env="Catch-v0"), ("board", "glyphs"))


def test_a_name_is_registered_once():
    with pytest.raises(UserError, match="Catch-v0 is registered already"):
        register_environment(catch.ENVIRONMENT)


def test_unknown_name():
    with pytest.raises(UserError) as error:
        env_spec(EnvConfig(root_env="NetHackScore-v9"))
    assert all(words in str(error.value) for words in ["'NetHackScore-v9'", "NetHackScore-v1", "--help root_env"])
    assert "\n" not in str(error.value)
    with pytest.raises(UserError):
        make_vector_env(EnvConfig(root_env=""), 1, 0, 0)


def test_the_step_limit_is_the_config_s():
    env = make_vector_env(EnvConfig(root_env="NetHackScore-v1", max_episode_steps=2), 1, seed=1, first_index=0)
    out = step_output(env)
    env.reset(out)
    ends = []
    for _ in range(4):
        env.step(np.zeros(1, np.int32), out)
        ends.append(bool(out.records["truncated"][0]))
    env.close()
    assert ends == [False, True, False, True]


@pytest.mark.parametrize(
    "name, told", [("nethack", "is taken"), ("a b", "choose letters and digits"), ("x\x1b", "'x.x1b'"), (5, "5")]
)
def test_language_with_a_bad_name_is_refused(name, told):
    language = catch.ENVIRONMENT.language
    assert language
    other = catch.ENVIRONMENT._replace(names=("Another-v0",), language=language._replace(name=name))
    with pytest.raises(UserError, match=told) as caught:
        register_environment(other)
    assert str(caught.value).isprintable() and "Another-v0" not in environment_names()
