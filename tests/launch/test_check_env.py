"""Environments that are broken in one way each, on the host and on the device, and what `launch.check_env` says."""

import random

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from launch import check_env
from oni_jax.envs import registry
from oni_jax.envs.base import Environment
from oni_jax.envs.device.gymnax_env import Captions, gymnax_environment
from oni_jax.envs.gymnasium_env import gymnasium_environment
from oni_jax.envs.small_env import small_environment
from tests.support import gymnax_plugin, memory_env
from tests.support.corridor_plugin import Corridor, describe

STEPS = ("--steps", "200", "--max_episode_steps", "300")


def checked(monkeypatch, capsys, environment: Environment, *words: str) -> tuple[int, list[str], str]:
    """The exit code, what is wrong, and the whole output."""
    monkeypatch.setattr(registry, "ENVIRONMENTS", [environment])
    code = check_env.main([next(iter(environment.names)), *STEPS, *words])
    said = capsys.readouterr().out
    return code, [line.removeprefix("wrong: ") for line in said.splitlines() if line.startswith("wrong: ")], said


class Unseeded(Corridor):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=random.getrandbits(31))


class UnseededSteps(Corridor):
    def step(self, action: int):
        return super().step(action if random.random() < 0.5 else 1 - action)


class Outside(Corridor):
    def _observation(self):
        return {**super()._observation(), "lamp": np.array([1.5], np.float32)}


class NoSuchId(Corridor):
    observation_space = spaces.Dict({"place": spaces.Discrete(3), "lamp": spaces.Box(-1, 1, (1,), np.float32)})


class Endless(Corridor):
    def step(self, action: int):
        seen, reward, _, _, info = super().step(action)
        return seen, reward, False, False, info


class NaNReward(Corridor):
    def step(self, action: int):
        seen, reward, terminated, truncated, info = super().step(action)
        return seen, float("nan") if reward else 0.0, terminated, truncated, info


class NaNObservation(Corridor):
    def _observation(self):
        return {**super()._observation(), "lamp": np.array([np.nan], np.float32)}


class Still(Corridor):
    """It moves, and shows nothing of it."""

    def _observation(self):
        super()._observation()
        return {"place": 1, "lamp": np.zeros(1, np.float32)}


class Deaf(Corridor):
    """Its actions are drawn anew."""

    def step(self, action: int):
        return super().step(int(self.np_random.integers(2)))


class Raises(Corridor):
    def step(self, action: int):
        raise LookupError("the lamp is\nbroken")


class NoStart(Corridor):
    def reset(self, *, seed=None, options=None):
        raise OSError("no display")


class OtherShape(Corridor):
    def step(self, action: int):
        seen, reward, terminated, truncated, info = super().step(action)
        return {**seen, "lamp": np.zeros((1, 2), np.float32)}, reward, terminated, truncated, info


def of(make, caption=describe, **more) -> Environment:
    return gymnasium_environment("Own", make, caption, **more)


def always(text: str):
    return lambda env, observation: text


@pytest.mark.parametrize(
    "environment, told",
    [
        (of(Unseeded), "the seed is ignored: a second play with it and the same actions differs"),
        (of(UnseededSteps), "the seed is ignored"),
        (of(Corridor, lambda env, seen: f"{random.random()}"), "the seed is ignored"),
        (of(Outside), "the observation lamp holds 1.5, outside its space, -1 to 1"),
        (of(NoSuchId), "the observation place holds 3, outside its space, 0 to 2"),
        (of(Endless), "no episode ends in 300 steps, but by --max_episode_steps"),
        (of(NaNReward), "the reward is nan at step "),
        (of(NaNObservation), "the observation lamp holds nan"),
        (of(Still, None), "the observation never changes in 200 steps"),
        (of(Deaf), "actions change nothing"),
        (of(Corridor, always("A corridor.")), "the caption never changes: 'A corridor.'"),
        (of(Corridor, always("")), "the caption is empty at every step"),
        (of(Corridor, lambda env, seen: "\0" + describe(env, seen)), "a caption holds a zero byte"),
        (of(Corridor, lambda env, seen: None), "does not start"),
        (of(Raises), "step 1 failed: LookupError: the lamp is broken"),
        (of(NoStart), "does not start (OSError: no display)"),
        (of(OtherShape), "step 1 failed: ValueError: lamp has the shape (1, 2)"),
    ],
    ids=lambda x: x[:40] if isinstance(x, str) else "",
)
def test_broken_environment_is_named(monkeypatch, capsys, environment, told):
    code, wrong, said = checked(monkeypatch, capsys, environment)
    assert code == 1 and any(told in line for line in wrong), said
    assert "nothing looks wrong" not in said


def test_sound_environment_is_summarised(monkeypatch, capsys):
    event = lambda env, action, info: ("left", "right")[action]  # noqa: E731
    code, wrong, said = checked(monkeypatch, capsys, of(Corridor, event=event))
    assert (code, wrong) == (0, []) and said.endswith("nothing looks wrong\n")
    assert "Own: 2 actions; observations: lamp float32[1], place int32[]" in said
    assert "200 random steps of 2 environments: " in said and "return: 1 to 1, mean 1" in said
    assert "7 distinct captions" in said and "The exit is 3 steps away." in said
    assert "2 distinct events in 400" in said and "right" in said


def test_possible_intent_is_a_note(monkeypatch, capsys):
    silent = of(Endless, describe, event=lambda env, action, info: "")
    code, wrong, said = checked(monkeypatch, capsys, silent, "--max_episode_steps", "50")
    assert (code, wrong) == (0, []), said
    assert "note: every episode is cut off by --max_episode_steps 50" in said and "note: no step had an event" in said


def test_text_of_a_state_is_checked_as_an_event(monkeypatch, capsys):
    code, wrong, _ = checked(monkeypatch, capsys, of(Corridor, event=lambda *_: "a step"), "--caption", "event")
    assert code == 0 and not wrong  # an episode's first caption is empty
    code, wrong, _ = checked(monkeypatch, capsys, of(Corridor, event=lambda *_: ""), "--caption", "event")
    assert code == 1 and "the caption is empty at every step" in wrong[0]


class Forgetful(memory_env.MemoryVectorEnv):
    """Environments that share a generator, and one that says a wrong length."""

    def begin(self, i):
        self.generators[i] = self.generators[0]
        super().begin(i)


class Miscounting(memory_env.MemoryVectorEnv):
    def step(self, actions, out):
        super().step(actions, out)
        out.episode_stats[:] += 1


class Unmarked(memory_env.MemoryVectorEnv):
    def step(self, actions, out):
        super().step(actions, out)
        out.records["is_first"] = False


@pytest.mark.parametrize(
    "env_class, told",
    [
        (Forgetful, "an environment depends on the others that are played beside it"),
        (Miscounting, "the statistic length of an episode is "),
        (Miscounting, "the statistic return of an episode is "),
        (Unmarked, "`is_first` is not set at each reset"),
    ],
)
def test_broken_vector_environment_is_named(monkeypatch, capsys, env_class, told):
    code, wrong, said = checked(monkeypatch, capsys, small_environment("Own", env_class))
    assert code == 1 and any(told in line for line in wrong), said


class Line(gymnax_plugin.Line):
    """A line whose faults are attributes."""

    def __init__(self, reward=None, scale=1.0, ends=True, space=None, moves=True):
        self.reward, self.scale, self.ends, self.space, self.moves = reward, scale, ends, space, moves
        if space:
            self.observation_space = lambda params: space

    def step_env(self, key, state, action, params):
        seen, after, reward, done, info = super().step_env(key, state, action if self.moves else jnp.int32(1), params)
        done = done & (after["position"] == params.length) if self.ends else jnp.bool_(False)
        return seen, after, reward if self.reward is None else jnp.float32(self.reward), done, info

    def _observe(self, state):
        return super()._observe(state) * self.scale


def fails(key: np.ndarray) -> str:
    raise ZeroDivisionError


PARAMS = gymnax_plugin.Params(max_steps_in_episode=10_000)
POSITION = gymnax_plugin.captions
UNIT = spaces.Box(0, 1, (5,))


@pytest.mark.parametrize(
    "line, captions, told",
    [
        (Line(reward=jnp.inf), POSITION, "the reward is inf at step 1 (and at 399 others)"),
        (Line(ends=False), POSITION, "no episode ends in 300 steps"),
        (Line(scale=2.0, space=UNIT), POSITION, "the observation observation holds 2, outside its space, 0 to 1"),
        (Line(scale=jnp.nan), POSITION, "the observation observation holds nan"),
        (Line(moves=False), POSITION, "actions change nothing"),
        (Line(), POSITION._replace(text=lambda key: "A line."), "the caption never changes: 'A line.'"),
        (
            Line(),
            Captions(
                lambda state: jnp.stack([state["position"], state["time"]]).astype(jnp.uint8),
                lambda key: f"You are at {key[0]}.",
            ),
            "keys, and is counted as so many: b'You are at ",
        ),
        (Line(), POSITION._replace(text=fails), "the reset failed: ZeroDivisionError"),
    ],
    ids=lambda x: x[:40] if isinstance(x, str) else "",
)
def test_broken_device_environment_is_named(monkeypatch, capsys, line, captions, told):
    code, wrong, said = checked(monkeypatch, capsys, gymnax_environment("Own", lambda: (line, PARAMS), captions))
    assert code == 1 and any(told in each for each in wrong), said


def test_sound_device_environment_is_summarised(monkeypatch, capsys):
    environment = gymnax_environment("Own", lambda: (Line(space=UNIT), PARAMS), POSITION)
    code, wrong, said = checked(monkeypatch, capsys, environment)
    assert (code, wrong) == (0, []) and "5 distinct captions" in said


def test_environment_of_a_plugin_is_checked(capsys):
    assert check_env.main(["Line-v0", "--plugin", "tests.support.gymnax_plugin", *STEPS]) == 0
    assert "nothing looks wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, told",
    [((), "name one environment"), (("Nope",), "unknown root_env 'Nope'"), (("Catch-v0", "--steps", "1"), "--steps 1")],
)
def test_wrong_words_are_a_line(capsys, words, told):
    assert check_env.main([*words]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


@pytest.mark.parametrize("name", ["Catch-v0", "NetHackScore-v1"])
def test_built_in_environment_looks_right(capsys, name):
    assert check_env.main([name]) == 0
    assert "nothing looks wrong" in capsys.readouterr().out
