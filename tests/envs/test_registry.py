"""Environments by name."""

import numpy as np
import pytest

from oni_jax.config import EnvConfig, UserError
from oni_jax.envs.registry import FAMILIES, env_spec, make_vector_env
from tests.envs.outputs import step_output

NAMES = [name for family in FAMILIES for name in family.names]


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_is_that_of_the_environment(name):
    config = EnvConfig(root_env=name)
    env = make_vector_env(config, num_envs=2, seed=1, first_index=0)
    out = step_output(env)
    env.reset(out)
    env.step(np.zeros(2, np.int32), out)
    env.close()
    spec = env_spec(config)
    assert spec == env.spec
    assert spec.caption is None or spec.caption in spec.observations
    assert spec.episode_stats[:2] == ("return", "length")


def test_glyphs():
    config = EnvConfig(root_env="NetHackScore-v1")
    added = set(env_spec(config, with_glyphs=True).observations) - set(env_spec(config).observations)
    assert added == {"glyphs", "hero_xy"}
    with pytest.raises(UserError, match="Catch-v0 has no glyphs"):
        env_spec(EnvConfig(root_env="Catch-v0"), with_glyphs=True)


def test_unknown_name():
    with pytest.raises(UserError) as error:
        env_spec(EnvConfig(root_env="NetHackScore-v9"))
    assert all(name in str(error.value) for name in ["'NetHackScore-v9'", *NAMES])
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
