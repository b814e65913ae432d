"""Several rewards in one: what tells them apart, and what they may save."""

import numpy as np
import pytest

from oni_jax.rewards.base import Reward
from oni_jax.rewards.terms import RewardSum, Term
from oni_jax.settings.fields import UserError


class Saving(Reward):
    """Saves what it is made with."""

    def __init__(self, saved):
        self._saved = saved

    def save(self):
        return self._saved


def rewards_that_save(**saved) -> RewardSum:
    return RewardSum([Term("saving", Saving(saved), 1.0)])


@pytest.mark.parametrize(
    "names, labels",
    [
        (["a", "b"], ("a", "b")),
        (["a", "a", "a"], ("a", "a_2", "a_3")),
        (["a", "a", "a_2"], ("a", "a_2", "a_2_2")),
        (["a_2", "a", "a"], ("a_2", "a", "a_3")),
    ],
)
def test_each_reward_has_a_unique_label(names, labels):
    assert RewardSum([Term(name, Reward(), 1.0) for name in names]).labels == labels


def test_values_that_no_checkpoint_holds_are_refused_by_name():
    assert rewards_that_save(seen=np.zeros((0, 3))).save()["seen"].shape == (0, 3)
    with pytest.raises(UserError, match=r"--llm_reward_type saving: save\(\) gives seen as Python objects"):
        rewards_that_save(seen=np.array([{}, {}])).save()
