"""Observations of earlier steps are those of the episode so far, wherever the environment runs."""

import jax
import numpy as np
import pytest

from oni_jax.envs.base import VectorEnv, make_step_output
from oni_jax.envs.device.base import observe_all
from oni_jax.envs.history import NO_ACTION, parse_past, past_name, past_specs, with_history
from oni_jax.envs.registry import caption_reader, env_spec, make_vector_env
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import ArraySpec, EnvSpec
from tests.envs.device.signals_env import SignalsEnv
from tests.golden import data_file
from tests.support import memory_env, signals_plugin
from tests.worlds.device.device_worlds import collect, make_world

N, LIMIT, NUM_STEPS = 3, 6, 40
PAST = ("past3/signal", "past1/signal", "past2/actions", "past4/times")
SHOWN = ("signal", *PAST)
DEVICE, HOST = signals_plugin.NAME, *memory_env.ENVIRONMENT.names


def expected(name: str, episode: list[np.ndarray], actions: list[int]) -> np.ndarray:
    """The window before the newest of an episode's observations, after these actions."""
    past = parse_past(name)
    assert past
    if past.source == "actions":
        return np.array(([NO_ACTION] * past.length + actions)[-past.length :])
    if past.source == "times":
        return np.maximum(np.arange(-past.length, 0) + len(actions), 0)
    return np.stack(([episode[0]] * past.length + episode)[-1 - past.length : -1])


def play(env, actions, out) -> list[np.ndarray]:
    """Returns copies of the records after each step."""
    records = []
    for row in actions:
        env.step(row, out)
        records.append((out.records.copy(), out.finals.copy()))
    return records  # type: ignore


def actions_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (NUM_STEPS, N)).astype(np.int32)


@pytest.mark.parametrize("name", [HOST, DEVICE])
def test_a_window_is_that_of_the_episode_so_far(name):
    config = EnvConfig(root_env=name, max_episode_steps=LIMIT)
    env = make_vector_env(config, N, 5, 0, SHOWN)
    out = make_step_output(env.spec, N)
    env.reset(out)
    episodes: list = [[out.records["signal"][i].copy()] for i in range(N)]
    taken: list[list[int]] = [[] for _ in range(N)]
    for i in range(N):
        for past in PAST:
            np.testing.assert_array_equal(out.records[past][i], expected(past, episodes[i], taken[i]))
    num_ended = 0
    for row in actions_of(1):
        env.step(row, out)
        for i in range(N):
            ended = out.records["terminated"][i] or out.records["truncated"][i]
            shown = out.finals[i] if ended else out.records[i]
            episodes[i].append(shown["signal"].copy())
            taken[i].append(int(row[i]))
            for past in PAST:
                np.testing.assert_array_equal(shown[past], expected(past, episodes[i], taken[i]))
            if ended:
                episodes[i], taken[i], num_ended = [out.records["signal"][i].copy()], [], num_ended + 1
                for past in PAST:
                    np.testing.assert_array_equal(out.records[past][i], expected(past, episodes[i], []))
    assert num_ended > N


@pytest.mark.parametrize("name", [HOST, DEVICE])
def test_windows_are_saved(name):
    config = EnvConfig(root_env=name, max_episode_steps=LIMIT)
    env, other = (make_vector_env(config, N, 5, 0, SHOWN) for _ in range(2))
    out = make_step_output(env.spec, N)
    env.reset(out)
    play(env, actions_of(1)[:7], out)
    other.restore(env.save())
    for (one, one_final), (two, two_final) in zip(play(env, actions_of(2), out), play(other, actions_of(2), out)):
        ended = one["terminated"] | one["truncated"]
        for field in SHOWN:
            np.testing.assert_array_equal(one[field], two[field])
            np.testing.assert_array_equal(one_final[field][ended], two_final[field][ended])


def test_a_rollouts_windows_are_those_of_the_episodes_across_its_edges():
    world, _, _ = make_world(observations=SHOWN)
    world.start()
    batches = [each.payload for each in collect(world, 4)]
    num_steps, num_envs = batches[0].actions.shape
    num_ended = 0
    for i in range(num_envs):
        episode: list[np.ndarray] = []
        taken: list[int] = []
        for batch in batches:
            for t in range(num_steps):
                if batch.is_first[t, i]:
                    episode, taken = [], []
                episode.append(np.asarray(batch.observations["signal"][t, i]))
                for past in PAST:
                    np.testing.assert_array_equal(batch.observations[past][t, i], expected(past, episode, taken))
                taken.append(int(batch.actions[t, i]))
                if batch.terminations[t, i] or batch.truncations[t, i]:
                    last = [*episode, np.asarray(batch.final_observations["signal"][t, i])]
                    for past in PAST:
                        found = batch.final_observations[past][t, i]
                        np.testing.assert_array_equal(found, expected(past, last, taken))
                    num_ended += 1
    assert num_ended > num_envs


@pytest.mark.parametrize("name", ["Catch-v0", "NetHackScore-v1", DEVICE])
def test_captions_are_observations(name):
    """Texts of host environments, keys of those that can run on a device: read back, they are the captions."""
    config, past = EnvConfig(root_env=name, max_episode_steps=LIMIT), "past2/caption"
    env, read = make_vector_env(config, N, 5, 0, [past]), caption_reader(config)
    out = make_step_output(env.spec, N)
    env.reset(out)
    episodes = [[caption] for caption in out.texts.captions]
    num_ended = 0
    for row in [None, *actions_of(1)]:
        if row is not None:
            env.step(row, out)
        for i in range(N):
            ended = out.records["terminated"][i] or out.records["truncated"][i]
            if row is not None:
                episodes[i].append((out.texts.final_captions if ended else out.texts.captions)[i])
            shown = out.finals[i] if ended else out.records[i]
            window = ([episodes[i][0]] * 2 + episodes[i])[-3:]
            assert [read(key) for key in (*shown[past], shown["caption"])] == window
            if ended:
                episodes[i], num_ended = [out.texts.captions[i]], num_ended + 1
                assert {read(key) for key in out.records[past][i]} == {out.texts.captions[i]}
    assert num_ended > N and len({caption for episode in episodes for caption in episode}) > 1
    env.close()


def test_a_device_shows_the_keys_of_captions():
    world, _, _ = make_world(observations=("signal", "caption", "past2/caption"))
    world.start()
    for each in collect(world, 3):
        batch = each.payload
        for rows in (batch.observations, each.captions.before.observations, each.captions.caused.observations):
            np.testing.assert_array_equal(rows["caption"], np.asarray(rows["signal"]).astype(np.uint8))
        captions, past = (np.asarray(batch.observations[name]) for name in ("caption", "past2/caption"))
        expected = np.where(np.asarray(batch.is_first)[1:, :, None], captions[1:], captions[:-1])
        np.testing.assert_array_equal(past[1:, :, -1], expected)


def test_captions_are_saved():
    config, past = EnvConfig(root_env="Catch-v0", max_episode_steps=LIMIT), "past3/caption"
    env, other = (make_vector_env(config, N, 5, 0, [past]) for _ in range(2))
    out = make_step_output(env.spec, N)
    env.reset(out)
    play(env, actions_of(1)[:2], out)
    other.restore(env.save())
    for (one, _), (two, _) in zip(play(env, actions_of(2), out), play(other, actions_of(2), out)):
        np.testing.assert_array_equal(one[past], two[past])


def test_a_wrong_size_of_keys_is_an_error(monkeypatch):
    monkeypatch.setattr(SignalsEnv, "spec", SignalsEnv.spec._replace(caption_size=2))
    with pytest.raises(UserError, match="its captions' keys have 1 bytes, and its spec has caption_size=2"):
        observe_all(SignalsEnv(), SignalsEnv().reset(jax.random.key(0)))


def test_the_host_reads_final_windows_where_episodes_ended():
    world, _, _ = make_world(observations=SHOWN)
    world.start()
    for each in collect(world, 3):
        ended = np.asarray(each.payload.terminations) | np.asarray(each.payload.truncations)
        for name in SHOWN:
            after = each.captions.caused.observations[name]
            np.testing.assert_array_equal(after[ended], each.payload.final_observations[name][ended])
            np.testing.assert_array_equal(after[~ended], each.payload.observations[name][1:][~ended])
            np.testing.assert_array_equal(each.captions.before.observations[name], each.payload.observations[name][:-1])


def test_names():
    assert past_name(5, "image") == "past5/image" and parse_past("past5/image") == (5, "image")
    assert parse_past("image") is parse_past("past0/image") is parse_past("past/image") is None
    spec = env_spec(EnvConfig(root_env=HOST), PAST)
    assert {name: x.shape for name, x in spec.observations.items()} == {
        "signal": (1,),
        "past3/signal": (3, 1),
        "past1/signal": (1, 1),
        "past2/actions": (2,),
        "past4/times": (4,),
    }
    with pytest.raises(UserError, match="does not show caption"):
        env_spec(EnvConfig(root_env=HOST), ["past3/caption"])
    assert env_spec(EnvConfig(root_env="Catch-v0"), ["past3/caption"]).observations["past3/caption"].shape == (3, 512)
    with pytest.raises(UserError, match="does not show noise"):
        env_spec(EnvConfig(root_env=HOST), ["past3/noise"])


class RecordedVectorEnv(VectorEnv):
    """Shows recorded observations [T, N, ...], and ends the episodes before recorded first steps [T, N]."""

    num_restarts = 0

    def __init__(self, images: np.ndarray, is_first: np.ndarray):
        self.spec = EnvSpec({"image": ArraySpec(images.shape[2:], "float32")}, 7, False, ("return", "length"))
        self.num_envs, self._images, self._is_first, self._t = images.shape[1], images, is_first, 0

    def reset(self, out) -> None:
        out.records["image"], out.records["is_first"] = self._images[0], True

    def step(self, actions, out) -> None:
        self._t += 1
        out.records["image"], out.records["is_first"] = self._images[self._t], self._is_first[self._t]
        out.records["terminated"] = self._is_first[self._t]


def test_windows_are_the_recorded_ones():
    with np.load(data_file("bk_history_windows.npz")) as recorded:
        images, actions = recorded["w/rm_obs"], recorded["w/rm_actions"]  # [T, N, 6, ...]: the present one last
    num_steps, num_envs, length = actions.shape
    slides = [
        (whole[1:, :, :-1] == whole[:-1, :, 1:]).reshape(num_steps - 1, num_envs, -1).all(-1)
        for whole in (images, actions)
    ]
    is_first = np.concatenate([np.ones((1, num_envs), bool), ~(slides[0] & slides[1])])
    past, taken = f"past{length - 1}/image", f"past{length - 1}/actions"
    env = RecordedVectorEnv(images[:, :, -1], is_first)
    spec = env.spec._replace(observations={**env.spec.observations, **past_specs(env.spec, (past, taken))})
    env = with_history(env, spec)
    out = make_step_output(spec, num_envs)
    env.reset(out)
    for t in range(num_steps):
        np.testing.assert_array_equal(out.records[past], images[t, :, :-1])
        found = out.records[taken]
        ages = np.array([t - np.flatnonzero(is_first[: t + 1, i])[-1] for i in range(num_envs)])
        before = np.arange(length - 1) < length - 1 - ages[:, None]
        # BK: in these places stands the episode's first action, even if it is about to be taken.
        assert (found[before] == NO_ACTION).all()
        np.testing.assert_array_equal(found[~before], actions[t, :, :-1][~before])
        if t + 1 < num_steps:
            env.step(actions[t, :, -1], out)
    assert is_first[1:].sum() > num_envs
