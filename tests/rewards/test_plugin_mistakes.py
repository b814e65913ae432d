"""Rewards of plugins that make mistakes: each is named in a line, and one bad look-up costs no batch."""

import jax
import numpy as np
import pytest

from oni_jax.host.reporting import reported_to
from oni_jax.ops.captions import NO_CAPTIONS
from oni_jax.rewards.base import MAX_FAILED, LookUp, Scorer
from oni_jax.rewards.combine import Paid
from oni_jax.rewards.terms import RewardSum, Term
from oni_jax.settings.fields import UserError
from oni_jax.types import CaptionBatch, StepCaptions, Trajectory

INDEX = np.array([[0, 1, 0], [2, 1, 0]], np.int32)  # [T, B] into the captions
CAPTIONS = StepCaptions(CaptionBatch([b"a door", b"a wall", b"a key"], INDEX), NO_CAPTIONS)
BAD = [None, float("nan"), float("inf"), "far", [1.0, 2.0], KeyError("a wall")]


class Tables(LookUp):
    """Looks up a table; an error in it is raised."""

    def __init__(self, table):
        self._table = table

    def look_up(self, caption):
        if isinstance(value := self._table[caption], Exception):
            raise value
        return value


class Prepares(Scorer):
    """Prepares what it is made with, and takes it for the values."""

    def __init__(self, values):
        self._values = values

    def prepare(self, captions):
        return {"values": self._values(captions) if callable(self._values) else self._values}

    def raw_values(self, state, seen, features):
        return features["values"] * np.float32(1)


def sum_of(scorer) -> RewardSum:
    return RewardSum([Term("walls", Paid(scorer, "before", 0.0, False), 1.0)])


def scored(rewards: RewardSum):
    features, (num_steps, num_trajectories) = rewards.prepare(CAPTIONS), INDEX.shape
    zeros = np.zeros((num_steps, num_trajectories), np.float32)
    trajectory = Trajectory({}, *[zeros] * 12, (), ())._replace(before_counts=zeros + 1)  # type: ignore
    return jax.jit(rewards.score)(rewards.init(jax.random.key(0)), trajectory, features, jax.random.key(1)).rewards[0]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_look_up_without_a_number_counts_as_0_and_is_named(bad):
    lines, rewards = [], sum_of(Tables({b"a door": 1.0, b"a wall": bad, b"a key": 10**400}))
    with reported_to(lambda text, _: lines.append(text)):
        np.testing.assert_array_equal(scored(rewards), np.array([[1, 0, 1], [1e15, 0, 1]], np.float32))
        rewards.prepare(CAPTIONS)
    assert rewards.metrics(())["look_ups_failed"] == 2
    (line,) = lines  # the second one is counted
    for words in (f"plugin {__name__}", "`look_up` of b'a wall'", "batch 1, first at step 0 of trajectory 1", "as 0"):
        assert words in line


def test_look_up_that_never_gives_a_number_ends_the_run():
    rewards = sum_of(Tables({b"a door": None, b"a wall": None, b"a key": None}))
    with reported_to(lambda *_: None), pytest.raises(UserError, match="`look_up` of b'a door'.*; mend it there"):
        for _ in range(MAX_FAILED):
            rewards.prepare(CAPTIONS)


@pytest.mark.parametrize(
    "values, said",
    [
        (np.array([[1.0, None, 1.0]] * 2), "`prepare` of the reward walls.*'values' as object"),
        (np.full((2, 3), "far"), "`prepare` of the reward walls.*'values' as <U3"),
        (np.ones((2, 3), complex), "`prepare` of the reward walls.*'values' as complex128"),
        ([[1.0], [1.0, 2.0]], "`prepare` of the reward walls failed"),
        (np.ones(3, np.float32), r"`score` of the reward walls, from .*values float32 \[3\].* not \[2, 3\]"),
        (np.ones((5, 7), np.float32), r"`score` of the reward walls, from .*values float32 \[5, 7\]"),
        (lambda captions: captions.no_such_thing, "`prepare` of the reward walls.*no_such_thing"),
    ],
)
def test_wrong_dtype_or_shape_names_the_plugin(values, said):
    with pytest.raises(UserError, match=f"plugin {__name__}: its {said}") as error:
        scored(sum_of(Prepares(values)))
    assert "\n" not in str(error.value)


def test_prepare_that_gives_no_dict_names_the_plugin(monkeypatch):
    monkeypatch.setattr(Prepares, "prepare", lambda *_: None)
    with pytest.raises(UserError, match=f"plugin {__name__}: its `prepare` of the reward walls"):
        scored(sum_of(Prepares(1.0)))


def test_shards_of_different_shapes_name_the_plugin():
    shards = iter([np.ones((2, 3)), np.ones((2, 4))])
    rewards = sum_of(Prepares(lambda _: next(shards)))
    with pytest.raises(UserError, match=r"`prepare`.*\[2, 3\] and .*\[2, 4\] for equal shards"):
        rewards.prepare_shards([CAPTIONS, CAPTIONS])
