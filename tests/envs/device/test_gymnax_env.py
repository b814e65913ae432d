"""Environments of gymnax's kind run as device environments, from a plugin of one line."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.base import make_step_output
from oni_jax.envs.device.gymnax_env import GymnaxEnv, gymnax_environment
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import ArraySpec
from tests.support.gymnax_plugin import NAME, Line, Params

CONFIG = EnvConfig(root_env=NAME, max_episode_steps=100)


def play(actions: list[int]) -> tuple[list[tuple], np.ndarray]:
    """(position, reward, terminated, truncated, caption) of each step, and the statistics at the end."""
    env = make_vector_env(CONFIG, 1, 3, 0)
    out, seen = make_step_output(env.spec, 1), []
    env.reset(out)
    for action in actions:
        env.step(np.array([action], np.int32), out)
        record = out.records[0]
        ended = record["terminated"] or record["truncated"]
        shown, texts = (out.finals[0], out.texts.final_captions) if ended else (record, out.texts.captions)
        position = int(shown["observation"].argmax())
        seen.append(
            (position, float(record["reward"]), bool(record["terminated"]), bool(record["truncated"]), texts[0])
        )
    return seen, out.episode_stats[0].tolist()


def test_its_spec_is_that_of_what_it_shows():
    spec = env_spec(CONFIG)
    assert spec.observations == {"observation": ArraySpec((5,), "float32")} and spec.num_actions == 2
    assert spec.has_captions and spec.episode_stats == ("return", "length")


def test_wrapper_plays_by_the_environments_rules():
    seen, stats = play([1] * 4)
    arrived = next(i for i, step in enumerate(seen) if step[0] == 4)
    assert seen[arrived] == (4, 1.0, True, False, b"The end is 0 steps away.") and not any(s[2] for s in seen[:arrived])
    assert stats == [1.0, arrived + 1]


def test_its_step_limit_is_a_truncation():
    seen, stats = play([0] * 20)
    assert (
        [step[3] for step in seen] == [False] * 19 + [True] and not any(step[2] for step in seen) and stats == [0, 20]
    )


class NewLine(Line):
    """As in gymnax from 1.0 on: a step limit is no end."""

    def step_env(self, key, state, action, params):
        seen, state, reward, _, info = super().step_env(key, state, action, params)
        return seen, state, reward, reward > 0, info

    def is_truncated(self, state, params):
        return state["time"] >= 3


class BothEndings(Line):
    """With two endings in a step's outcome."""

    def step_env(self, key, state, action, params):
        seen, state, reward, _, info = super().step_env(key, state, action, params)
        return seen, state, reward, reward > 0, state["time"] >= 3, info


@pytest.mark.parametrize("kind", [NewLine, BothEndings])
@pytest.mark.parametrize(("action", "length", "ending"), [(0, 9, "truncated"), (1, 2, "terminated")])
def test_its_truncation_is_no_termination(kind, action, length, ending):
    environment = gymnax_environment("New", lambda: (kind(), Params(length)))
    env = environment.make(CONFIG, environment.make_spec(CONFIG), 1, 3, 0)
    out = make_step_output(env.spec, 1)
    env.reset(out)
    for _ in range(3):
        env.step(np.array([action], np.int32), out)
        if out.records["is_first"][0]:
            break
    assert [name for name in ("terminated", "truncated") if out.records[name][0]] == [ending]


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        (types.SimpleNamespace(reset_env=None), "has no step_env"),
        (types.SimpleNamespace(reset_env=lambda *_: (jnp.zeros(2), 0), step_env=None, action_space=lambda _: 0), "dis"),
        (types.SimpleNamespace(reset_env=lambda *_: ([jnp.zeros(2)], 0), step_env=None), "an observation is a list"),
    ],
)
def test_object_without_gymnaxs_interface_is_refused(env, problem):
    with pytest.raises(UserError, match=problem):
        _ = GymnaxEnv(env, Params()).spec
