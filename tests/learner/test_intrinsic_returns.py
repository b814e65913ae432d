"""Sums over episodes do not depend on where batches end, and are those of whole episodes alone."""

import numpy as np
import pytest

from oni_jax.learner.intrinsic_returns import IntrinsicReturns
from oni_jax.worlds.base import Episodes

NUM_STEPS, NUM_ENVS = 24, 3
LABELS = ("a", "b")


def played(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards [K, T, N], and where episodes begin and end [T, N], all of which begin with the first step."""
    rng = np.random.default_rng(seed)
    ended = rng.random((NUM_STEPS, NUM_ENVS)) < 0.3
    is_first = np.concatenate([np.ones((1, NUM_ENVS), bool), ended[:-1]])
    return rng.normal(size=(2, NUM_STEPS, NUM_ENVS)).astype(np.float32), is_first, ended


def expected(rewards: np.ndarray, ended: np.ndarray, env: int) -> list[np.ndarray]:
    """Returns one environment's sums, episode by episode."""
    cuts = np.flatnonzero(ended[:, env]) + 1
    return [episode.sum(axis=1) for episode in np.split(rewards[..., env].astype(float), cuts, axis=1)[: len(cuts)]]


def add(returns: IntrinsicReturns, steps, times: slice, envs: list[int], gaps: list[bool] | None = None) -> None:
    rewards, is_first, ended = steps
    episodes = Episodes(
        np.array(envs), is_first[times][:, envs], ended[times][:, envs], np.array(gaps or [False] * len(envs))
    )
    returns.add(rewards[:, times][..., envs], episodes)


@pytest.mark.parametrize("size", [1, 5, 24])
def test_returns_do_not_depend_on_the_cuts_between_batches(size):
    steps = played()
    returns = IntrinsicReturns(LABELS)
    found = []
    for start in range(0, NUM_STEPS, size):
        add(returns, steps, slice(start, start + size), [2, 0, 1])
        found += returns.take()
    wanted = [x for env in range(NUM_ENVS) for x in expected(steps[0], steps[2], env)]
    assert len(found) == len(wanted) > 5 and returns.take() == []
    np.testing.assert_allclose(sorted(map(tuple, found)), sorted(map(tuple, wanted)), rtol=1e-6)


def test_a_batch_may_hold_several_trajectories_of_an_environment():
    rewards, is_first, ended = steps = played()
    whole, halves = IntrinsicReturns(LABELS), IntrinsicReturns(LABELS)
    add(whole, steps, slice(0, NUM_STEPS), [0, 1])

    def side_by_side(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x[..., :12, :2], x[..., 12:, :2]], axis=-1)

    begins, ends = side_by_side(is_first), side_by_side(ended)
    halves.add(side_by_side(rewards), Episodes(np.array([0, 1, 0, 1]), begins, ends, np.zeros(4, bool)))
    assert sorted(map(tuple, halves.take())) == sorted(map(tuple, whole.take()))
    np.testing.assert_array_equal(whole.save()["intrinsic_returns"], halves.save()["intrinsic_returns"])


def test_incomplete_returns_are_not_reported():
    """The second environment lacks a trajectory; a reward of the third is not finite."""
    rewards, is_first, ended = played()
    ended[:], is_first[1:] = False, False
    ended[[11, 23]], is_first[12] = True, True
    rewards[1, 3, 2] = np.nan
    returns = IntrinsicReturns(LABELS)
    add(returns, (rewards, is_first, ended), slice(0, 6), [0, 1, 2])
    add(returns, (rewards, is_first, ended), slice(6, 24), [0, 1, 2], [False, True, False])
    found = returns.take()
    np.testing.assert_allclose(found[0], expected(rewards, ended, 0)[0], rtol=1e-6)
    assert len(found) == 1 + 3


def test_restored_sums_go_on():
    steps = played()
    whole, first, second = (IntrinsicReturns(LABELS) for _ in range(3))
    add(whole, steps, slice(0, 24), [0, 1, 2])
    add(first, steps, slice(0, 9), [0, 1, 2])
    second.restore(first.save())
    add(second, steps, slice(9, 24), [0, 1, 2])
    assert sorted(map(tuple, second.take())) == sorted(map(tuple, whole.take()))
    unknown = IntrinsicReturns(LABELS)  # as from a checkpoint without them
    add(unknown, steps, slice(9, 24), [0, 1, 2])
    assert 0 < len(unknown.take()) < len(played()[2][9:].nonzero()[0])
