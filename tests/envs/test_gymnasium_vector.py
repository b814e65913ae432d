"""Environments of ours as gymnasium's vectors."""

import contextlib
import copy
import os
import pathlib
import pickle
import re
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import oni_jax
from oni_jax.envs import registry
from oni_jax.envs.base import VectorEnv, make_step_output
from oni_jax.envs.catch import CatchVectorEnv
from oni_jax.envs.gymnasium_vector import GymnasiumVector
from oni_jax.envs.registry import make_vector_env
from oni_jax.settings.worlds import EnvConfig
from tests.support import signals_plugin
from tests.support.processes import ROOT

NETHACK = "NetHackScore-v1"
TASKS: dict[str, dict[str, Any]] = {
    NETHACK: {"max_episode_steps": 7},
    "Catch-v0": {},
    signals_plugin.NAME: {"max_episode_steps": 7},
}
NUM_ENVS, NUM_STEPS = 3, 24


@contextlib.contextmanager
def made(name: str, num_envs: int = NUM_ENVS, **settings: Any) -> Iterator[GymnasiumVector]:
    envs = oni_jax.make_vec(name, num_envs, **TASKS.get(name, {}), **settings)
    yield envs
    envs.close()


def actions_of(envs: GymnasiumVector) -> np.ndarray:
    envs.action_space.seed(5)
    return np.stack([envs.action_space.sample() for _ in range(NUM_STEPS)])


def played(envs: gymnasium.vector.VectorEnv, seed: int | None, actions: np.ndarray) -> list[tuple]:
    return [envs.reset(seed=seed), *map(envs.step, actions)]


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, np.ndarray) and one.dtype == object:
        return equal(one.tolist(), other.tolist())
    return bool(np.array_equal(one, other))


@pytest.mark.parametrize("name", TASKS)
def test_vector_shows_what_its_spaces_say(name):
    with made(name) as envs:
        assert isinstance(envs, gymnasium.vector.VectorEnv) and envs.num_envs == NUM_ENVS
        observations, info = envs.reset(seed=1)
        assert envs.observation_space.contains(observations)
        for row in actions_of(envs):
            observations, rewards, terminated, truncated, info = envs.step(row)
            assert envs.observation_space.contains(observations)
            assert rewards.shape == terminated.shape == truncated.shape == (NUM_ENVS,)
            assert (rewards.dtype, terminated.dtype, truncated.dtype) == (float, bool, bool)
            assert all(isinstance(caption, str) for caption in info["caption"])


@pytest.mark.parametrize("name", TASKS)
def test_vector_plays_as_the_environment_does(name):
    """Returned arrays are copies: they are compared after all steps."""
    env = make_vector_env(EnvConfig(root_env=name, **TASKS[name]), NUM_ENVS, 4, 0)
    out, ended, steps = make_step_output(env.spec, NUM_ENVS), 0, []
    with made(name) as envs, contextlib.closing(env):
        actions = actions_of(envs)
        found = played(envs, 4, actions)
        env.reset(out)
        steps.append((out.records.copy(), list(out.texts.captions)))
        for row, (_, _, terminated, truncated, info) in zip(actions, found[1:], strict=True):
            env.step(row.astype(np.int32), out)
            steps.append((out.records.copy(), list(out.texts.captions)))
            ends = terminated | truncated
            assert np.array_equal(ends, out.records["is_first"]) and ("final_obs" in info) == ends.any()
            for i in ends.nonzero()[0]:
                ended += 1
                last, of_episode = info["final_obs"][i], info["final_info"]
                assert all(np.array_equal(last[key], out.finals[key][i]) for key in env.spec.observations)
                assert of_episode["caption"][i].encode("latin-1") == out.texts.final_captions[i]
                stats = [of_episode[key][i] for key in env.spec.episode_stats]
                assert np.array_equal(stats, out.episode_stats[i])
            for mask in ("_final_obs", "_final_info") if ends.any() else ():
                assert np.array_equal(info[mask], ends)
    assert ended
    for (records, captions), step in zip(steps, found, strict=True):
        assert all(np.array_equal(step[0][key], records[key]) for key in env.spec.observations)
        assert [caption.encode("latin-1") for caption in step[-1]["caption"]] == captions
        if len(step) == 5:
            fields = ("reward", "terminated", "truncated")
            assert all(np.array_equal(step[k + 1], records[key]) for k, key in enumerate(fields))


@pytest.mark.parametrize("name", TASKS)
def test_seeds_hold(name):
    with made(name) as envs, made(name) as others:
        actions = actions_of(envs)
        first, going_on = played(envs, 1, actions), played(envs, None, actions)
        assert equal(first, played(others, 1, actions)) and equal(going_on, played(others, None, actions))
        assert equal(first, played(envs, 1, actions))
        assert not equal(first, going_on) and not equal(first, played(envs, 2, actions))


def test_seeds_are_drawn_where_none_is_given():
    with made("Catch-v0") as envs, made("Catch-v0") as others:
        actions = actions_of(envs)
        assert not equal(played(envs, None, actions), played(others, None, actions))


def test_vector_declares_its_autoreset_and_takes_wrappers():
    with made("Catch-v0") as envs:
        assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
        wrapped.reset(seed=1)
        infos = [wrapped.step(row)[-1] for row in actions_of(envs)]
        ends = [info for info in infos if "episode" in info]
        assert ends
        for info in ends:
            np.testing.assert_allclose(info["episode"]["r"], info["final_info"]["return"])


def test_observations_and_settings_are_chosen_by_name():
    with made(NETHACK, 1, observations=("glyphs",), view="map") as envs:
        observations, _ = envs.reset(seed=1)
        assert observations.keys() == {"glyphs"} and observations["glyphs"].shape == (1, 21, 79)
    with made(signals_plugin.NAME, 2, plugin=signals_plugin.__name__) as envs:
        envs.reset(seed=1)
        assert {"caption", "event"} <= envs.step(np.zeros(2, int))[-1].keys()


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"root_env": "NetHackScor-v1"}, "NetHackScore-v1"),
        ({"root_env": NETHACK, "num_envs": 0}, "num_envs is 0"),
        *(({"root_env": NETHACK, "num_envs": number}, f"num_envs is {number!r}") for number in (2.0, "2", None, True)),
        ({"root_env": NETHACK, "viw": "map"}, "viw: there is no such setting of an environment; did you mean view"),
        ({"root_env": NETHACK, "learning_rate": 0.1}, "learning_rate"),
        ({"root_env": NETHACK, "view": "mapp"}, "must be one of terminal, map"),
        ({"root_env": NETHACK, "max_episode_steps": 0}, "max_episode_steps 0"),
        ({"root_env": NETHACK, "crafter_length": 5}, "crafter_length 5: has no meaning"),
        ({"root_env": NETHACK, "observations": ("map",)}, "does not show map"),
    ],
)
def test_bad_input_is_named(arguments, words):
    with pytest.raises(oni_jax.UserError, match=re.escape(words)):
        oni_jax.make_vec(**arguments)


@pytest.mark.parametrize(
    "actions", [[0, 0], [0, 0, -1], [0, 0, 1000], [0.0, 0.5, 1.0], [[0], [0, 1], 0], [None] * 3, [True] * 3, 0, None]
)
def test_other_actions_are_refused(actions):
    with made("Catch-v0") as envs:
        envs.reset(seed=1)
        with pytest.raises(gymnasium.error.InvalidAction, match="3 integers in"):
            envs.step(actions)


@pytest.mark.parametrize("options", [True, [1], np.ones(2, bool), "mask"])
def test_other_options_are_refused(options):
    with made("Catch-v0") as envs, pytest.raises(oni_jax.UserError, match="^options: .*: there are none"):
        envs.reset(options=options)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_vector_is_not_copied(copied):
    with made("Catch-v0") as envs, pytest.raises(TypeError, match="can't be copied or pickled"):
        copied(envs)


def test_vector_is_reset_first_and_not_used_once_it_is_closed():
    with made("Catch-v0") as envs:
        with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
            envs.step(np.zeros(NUM_ENVS, int))
        with pytest.raises(oni_jax.UserError, match="reset_mask"):
            envs.reset(options={"reset_mask": np.ones(NUM_ENVS, bool)})
    envs.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.reset()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.step(np.zeros(NUM_ENVS, int))


def left(folder: pathlib.Path) -> tuple[list[pathlib.Path], int, str]:
    """Files of a folder, open descriptors, and copies of the engine's code in memory."""
    maps = [line for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if str(folder) in line]
    return sorted(folder.rglob("*")), len(os.listdir("/proc/self/fd")), "\n".join(maps)


def test_closed_vector_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = []  # only `close` ends it

    def keep(*arguments: Any, **named: Any) -> VectorEnv:
        kept.append(make_vector_env(*arguments, **named))
        return kept[-1]

    monkeypatch.setattr(registry, "make_vector_env", keep)
    for _ in range(2):
        with made(NETHACK) as envs:
            envs.reset(seed=1)
            envs.reset(seed=2)
            assert left(tmp_path)[0]
        after = left(tmp_path)
    with made(NETHACK) as envs:
        played(envs, 3, actions_of(envs))
    assert left(tmp_path) == after and not after[0] and not after[2]


def test_example_of_the_page_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "make_vec" in block]
    exec(example, {})
    assert capsys.readouterr().out.splitlines()[-1].startswith("(16, 12, 12)")


@pytest.mark.parametrize("call", ["step", "reset"])
def test_second_thread_is_refused_in_a_line_while_the_first_steps(call, monkeypatch):
    inside, go_on, step = threading.Event(), threading.Event(), CatchVectorEnv.step

    def slow_step(*arguments):
        inside.set()
        assert go_on.wait(30)
        step(*arguments)

    monkeypatch.setattr(CatchVectorEnv, "step", slow_step)
    with made("Catch-v0") as envs:
        envs.reset(seed=1)
        actions = actions_of(envs)[0]
        first = threading.Thread(target=envs.step, args=(actions,))
        first.start()
        assert inside.wait(30)
        with pytest.raises(oni_jax.UserError, match="stepped or reset by another thread: let one thread step them"):
            envs.step(actions) if call == "step" else envs.reset(seed=2)
        go_on.set()
        first.join()
        envs.step(actions)  # after the other's end, any thread may
