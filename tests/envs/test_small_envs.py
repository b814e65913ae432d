"""Catch and Memory play by their rules, and are worth what they say."""

import itertools

import numpy as np
import pytest

from oni_jax.envs.catch import CatchVectorEnv
from tests.envs.outputs import are_equal, step_output
from tests.support.memory_env import CARRIED_RETURN, MAX_DELAY, MemoryVectorEnv


def run(env, policy, num_steps):
    """Mean return of the episodes that end; policy(records) -> actions [N]."""
    out = step_output(env)
    env.reset(out)
    returns = []
    for _ in range(num_steps):
        env.step(np.asarray(policy(out.records), np.int32), out)
        returns.extend(out.episode_stats[out.records["is_first"], 0])
    return np.mean(returns)


def chase(records):
    boards = records["board"].reshape(-1, 10, 5)
    paddles = boards[:, 9].argmax(1)
    balls = boards[:, :9].reshape(-1, 45).argmax(1) % 5
    return 1 + np.sign(balls - paddles)


def test_catch_is_worth_one_to_who_chases_and_minus_one_to_who_flees():
    assert run(CatchVectorEnv(8, seed=1), chase, 100) == 1
    assert run(CatchVectorEnv(8, seed=1), lambda records: np.full(8, 1), 400) == pytest.approx(-0.6, abs=0.2)


def test_catch_episode():
    env = CatchVectorEnv(1)
    out = step_output(env)
    env.reset(out)
    record = out.records[0]
    ball = record["board"].reshape(10, 5)[0].argmax()
    assert record["board"].sum() == 2 and record["board"].reshape(10, 5)[9].tolist() == [0, 0, 1, 0, 0]
    words = {0: b"below", 1: b"right", -1: b"left"}[int(np.sign(ball - 2))]
    assert words in record["message"].tobytes()
    for step in range(9):
        env.step(np.array([2], np.int32), out)
        assert record["terminated"] == record["is_first"] == (step == 8)
        assert not record["truncated"]
    final = out.finals[0]
    caught = ball == 4
    assert record["reward"] == final["reward"] == (1 if caught else -1)
    assert final["message"].tobytes().rstrip(b"\0") == (b"You catch the ball." if caught else b"You miss the ball.")
    assert final["board"].reshape(10, 5)[9].sum() == (1 if caught else 2)
    assert record["board"].reshape(10, 5)[0].sum() == 1
    assert out.episode_stats[0].tolist() == [record["reward"], 9]


def test_memory_is_worth_one_to_who_remembers():
    first = np.zeros(16)

    def recall(records):
        signals = records["signal"][:, 0]
        first[:] = np.where(records["is_first"], signals, first)
        return first > 0

    assert run(MemoryVectorEnv(16, seed=1), recall, 200) == 1
    assert abs(run(MemoryVectorEnv(16, seed=1), lambda records: records["signal"][:, 0] > 0, 3000)) < 0.05


def test_memory_is_worth_less_to_who_knows_no_beginning():
    past = np.zeros((MAX_DELAY + 1, 16))

    def majority(records):
        past[:-1] = past[1:]
        past[-1] = records["signal"][:, 0]
        return past[:-1].sum(0) > 0

    assert run(MemoryVectorEnv(16, seed=1), majority, 5000) == pytest.approx(CARRIED_RETURN, abs=0.03)


def test_carried_return():
    signals = np.array(list(itertools.product((-1, 1), repeat=4)))
    # The first one is any of the four: the majority's mean agreement is |sum| / 4, a return already.
    assert np.abs(signals.sum(1)).mean() / 4 == CARRIED_RETURN


@pytest.mark.parametrize("env_class", [CatchVectorEnv, MemoryVectorEnv])
def test_a_group_equals_single_environments(env_class):
    actions = np.random.default_rng(0).integers(2, size=(60, 3)).astype(np.int32)

    def records_of(env, actions):
        out = step_output(env)
        env.reset(out)
        records = [out.records.copy()]
        for action in actions:
            env.step(action, out)
            records.append(out.records.copy())
        return np.array(records)

    together = records_of(env_class(3, seed=5, first_index=2), actions)
    for i in range(3):
        alone = records_of(env_class(1, seed=5, first_index=2 + i), actions[:, i : i + 1])
        assert are_equal(alone[:, 0], together[:, i])
    assert not are_equal(together[:, 0], together[:, 1])


def test_truncation():
    env = CatchVectorEnv(2, max_episode_steps=4)
    out = step_output(env)
    env.reset(out)
    for step in range(1, 9):
        env.step(np.zeros(2, np.int32), out)
        assert out.records["truncated"].tolist() == [step % 4 == 0] * 2
        assert not out.records["terminated"].any() and not out.records["reward"].any()
    assert out.finals["board"][0].reshape(10, 5)[4].sum() == 1
    assert out.episode_stats.tolist() == [[0, 4], [0, 4]]
