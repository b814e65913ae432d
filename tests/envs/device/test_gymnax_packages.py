"""Environments of the packages gymnax and Craftax, where they are installed; `make test-versions` installs them."""

import importlib.metadata
import pathlib
from typing import Any

import numpy as np
import pytest

from launch import train
from oni_jax.envs import registry
from oni_jax.envs.base import make_step_output
from oni_jax.envs.device.gymnax_env import gymnax_environment
from oni_jax.settings.worlds import EnvConfig
from tests.support.processes import summary

TRAIN = "--llm_reward_type=none --encoder_custom=mlp_encoder --hidden_size=64 --use_rnn=False --learning_rate=0.003"

pytestmark = pytest.mark.slow


def cart_pole(**changed: Any) -> tuple[Any, Any]:
    gymnax = pytest.importorskip("gymnax", reason="gymnax is not installed: make test-versions")
    env, params = gymnax.make("CartPole-v1")
    return env, params.replace(**changed)


def craftax() -> tuple[Any, Any]:
    made = pytest.importorskip("craftax.craftax_env", reason="craftax is not installed: make test-versions")
    env = made.make_craftax_env_from_name("Craftax-Symbolic-v1", auto_reset=False)
    return env, env.default_params


def trained(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, make: Any, *words: str) -> dict:
    monkeypatch.setattr(registry, "ENVIRONMENTS", [*registry.ENVIRONMENTS, gymnax_environment("Theirs", make)])
    run = f"--root_env=Theirs --train_dir={folder} --experiment=run {TRAIN}".split()
    assert train.main([*run, *words]) == 0
    return summary(folder / "run")


def test_cart_pole_is_learnt(tmp_path, monkeypatch):
    cart_pole()
    words = "--gamma=0.99 --rollout=32 --batch_size=2048 --train_for_env_steps=200000".split()
    assert trained(tmp_path, monkeypatch, cart_pole, *words)["mean_return"] > 50  # random actions: 22


@pytest.mark.parametrize(("limit", "is_cut_off"), [(5, True), (500, False)])
def test_time_limit_is_a_truncation(limit, is_cut_off):
    cart_pole()
    print("gymnax", importlib.metadata.version("gymnax"))
    environment = gymnax_environment("Theirs", lambda: cart_pole(max_steps_in_episode=limit))
    config = EnvConfig(root_env="Theirs")
    env = environment.make(config, environment.make_spec(config), 2, 0, 0)
    out = make_step_output(env.spec, 2)
    env.reset(out)
    step = 0
    while not out.records["is_first"].any() or not step:
        env.step(np.ones(2, np.int32), out)
        step += 1
    ended = out.records[out.records["is_first"]]
    assert (step == limit) == is_cut_off and ended["truncated"].all() == is_cut_off
    assert ended["terminated"].all() != is_cut_off


def test_craftax_is_trained_on(tmp_path, monkeypatch):
    craftax()
    words = "--rollout=8 --recurrence=8 --batch_size=64 --train_for_env_steps=64".split()
    assert trained(tmp_path, monkeypatch, craftax, *words)["updates"] == 1
