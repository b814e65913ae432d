"""Sub-episodes in words."""

import numpy as np
import pytest

from oni_jax.offline.dataset import PairDataset
from oni_jax.offline.descriptions import describe_blstats, describe_messages, describe_pairs
from oni_jax.offline.pair_config import PreferenceConfig
from tests.offline.pairs import padded, write_dataset


@pytest.mark.parametrize(
    "messages, expected",
    [
        ([b"A.", b"A.", b"A."], b"A. (x3)"),
        ([b"A.", b"B.", b"B.", b"A."], b"A.\nB. (x2)\nA."),
        ([b"", b"A.", b"", b"A.", b""], b"A. (x2)"),
        ([b"", b""], b""),
        ([b"caf\xe9\xff", b"x"], b"caf\xe9\xff\nx"),
    ],
)
def test_equal_messages_in_a_row_are_merged_and_empty_ones_dropped(messages, expected):
    assert describe_messages(padded(messages)) == expected


def test_zeros_inside_a_message_are_dropped():
    messages = padded([b"A."])
    messages[0, 5] = ord("!")
    assert describe_messages(messages) == b"A.!"


def test_statistics_are_those_of_the_last_step():
    blstats = np.zeros((2, 27), np.int64)
    blstats[1, [10, 11, 12, 13, 18, 21]] = 7, 16, 3, 120, 2, 1
    expected = b"Depth 3, gold 120, HP 7 of at most 16, experience level 2, not hungry."
    assert describe_blstats(blstats) == expected
    blstats[1, 21] = 9
    assert describe_blstats(blstats).endswith(b"hunger state 9.")


@pytest.mark.parametrize("use_messages, use_blstats", [(True, False), (True, True), (False, True)])
def test_parts_of_a_description(tmp_path, use_messages, use_blstats):
    write_dataset(
        tmp_path,
        {"data/message": padded([[[b"one"], [b""]]] * 2), "data/blstats": np.ones((2, 2, 1, 27), np.int32)},
    )
    preference = PreferenceConfig(str(tmp_path), use_messages=use_messages, use_blstats=use_blstats)
    dataset = PairDataset(str(tmp_path), ["data/message", "data/blstats"])
    (first, second), _ = describe_pairs(preference, dataset, np.array([0, 1]))
    assert (b"one" in first) == use_messages and b"one" not in second
    assert (b"Depth 1" in first) == use_blstats == (b"Depth 1" in second)
    assert not first.startswith(b"\n") and not second.startswith(b"\n")
