"""Device environments behind `VectorEnv`, beyond the conformance suite: events, keys in a state, several resets."""

import numpy as np

from oni_jax.envs.base import make_step_output
from oni_jax.envs.device.shown import TextTable
from oni_jax.envs.device.vector_env import DeviceVectorEnv
from tests.envs.device.signals_env import SignalsEnv
from tests.envs.outputs import are_equal
from tests.envs.single_episode import SingleEpisode

N = 4


def make(num_envs: int = N, limit: int | None = 6, **settings) -> DeviceVectorEnv:
    return DeviceVectorEnv(SignalsEnv(limit), num_envs, **settings)


def actions(step: int) -> np.ndarray:
    return np.arange(step, step + N, dtype=np.int32) // 2 % 2


def test_records_texts_and_statistics_belong_together():
    env = make()
    out = make_step_output(env.spec, N)
    env.reset(out)
    assert out.texts.events == [b""] * N
    lengths, rewards, num_ended = np.zeros(N), np.zeros(N), 0
    for step in range(60):
        before, action = out.records.copy(), actions(step)
        env.step(action, out)
        records, finals = out.records, out.finals
        lengths, rewards = lengths + 1, rewards + records["reward"]
        np.testing.assert_array_equal(records["reward"], action == before["parity"])
        ended = records["is_first"]
        np.testing.assert_array_equal(ended, records["terminated"] | records["truncated"])
        np.testing.assert_array_equal(records["truncated"], (lengths == 6) & ~records["terminated"])
        assert out.texts.events == [b"You say %d." % number for number in action]
        assert out.texts.captions == [b"The signal is %d." % signal for signal in records["signal"][:, 0]]
        for i in np.flatnonzero(ended):
            assert out.texts.final_captions[i] == b"The signal is %d." % finals["signal"][i, 0]
            assert (finals["signal"][i, 0] == 0) == records["terminated"][i] and records["signal"][i, 0] > 0
            assert out.episode_stats[i].tolist() == [rewards[i], lengths[i], rewards[i]]
        lengths, rewards, num_ended = lengths * ~ended, rewards * ~ended, num_ended + ended.sum()
    assert num_ended > 2 * N


def test_saved_keys_and_episodes_go_on_alike():
    env, other = make(seed=1), make(seed=2)
    out, other_out = (make_step_output(env.spec, N) for _ in range(2))
    env.reset(out)
    for step in range(9):
        env.step(actions(step), out)
    saved = env.save()
    assert all(isinstance(x, np.ndarray) for x in saved.values())
    other.restore({**saved, "another": np.zeros(1)})
    for step in range(40):
        env.step(actions(step), out)
        other.step(actions(step), other_out)
        assert are_equal(out.records, other_out.records) and out.texts.captions == other_out.texts.captions


def test_a_later_reset_starts_other_episodes():
    env, seen = make(seed=1), []
    out = make_step_output(env.spec, N)
    for _ in range(6):
        env.reset(out)
        seen.append(tuple(out.records["signal"][:, 0].tolist()))
    assert len({*seen}) == 6


def test_only_the_observations_asked_for_are_shown():
    spec = SignalsEnv.spec._replace(observations={"parity": SignalsEnv.spec.observations["parity"]})
    env = make(spec=spec)
    out = make_step_output(env.spec, N)
    env.reset(out)
    assert "signal" not in (out.records.dtype.names or ()) and set(out.records["parity"]) <= {0, 1}


def test_a_single_episode():
    episode = SingleEpisode(make(1, limit=5, seed=4))
    episode.begin()
    while not episode.ended:
        record = episode.act(0)
    assert episode.stats["length"] <= 5 and episode.caption() == b"The signal is %d." % record["signal"][0]  # type: ignore


def test_a_text_is_made_once():
    made = []

    def make_text(key: np.ndarray) -> bytes:
        made.append(bytes(key))
        return bytes(key) * 2

    table = TextTable(make_text, max_known=2)
    keys = np.array([[1], [2], [1], [3]], np.uint8)
    codes = keys[:, 0].astype(np.uint64)
    assert table.look_up(codes, keys) == [b"\1\1", b"\2\2", b"\1\1", b"\3\3"] and made == [b"\1", b"\2", b"\3"]
    table.look_up(codes[:1], keys[:1])  # the table was too large, and is cleared
    assert made == [b"\1", b"\2", b"\3", b"\1"]
