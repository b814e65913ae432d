"""Retrieval: the label is the reward; what has none is asked for."""

from typing import cast

import numpy as np

from oni_jax.config import RewardConfig
from oni_jax.rewards.retrieval import RetrievalReward
from oni_jax.types import UNKNOWN, Annotation, CaptionBatch, Trajectory

CAPTIONS = CaptionBatch([b"You kill the newt!", b"", b"It is dark."], np.array([[0, 1], [2, 0], [1, 1]], np.int32))


def test_labels_become_rewards():
    reward = RetrievalReward(RewardConfig())
    assert not reward.prepare(CAPTIONS)["labels"].any()
    reward.ingest([Annotation((b"You kill the newt!",), 1, 0.9), Annotation((b"It is dark.",), 0, 0.2)])
    features = reward.prepare(CAPTIONS)
    np.testing.assert_array_equal(features["labels"], np.array([[1, 0], [0, 1], [0, 0]], np.float32))
    assert features["labels"].dtype == np.float32
    assert reward.score((), cast(Trajectory, None), features).rewards is features["labels"]


def test_only_the_unlabelled_are_asked_for_and_never_the_empty():
    reward = RetrievalReward(RewardConfig())
    assert reward.requests(CAPTIONS) == [(b"You kill the newt!",), (b"It is dark.",)]
    reward.ingest([Annotation((b"You kill the newt!",), 1, 1.0)])
    reward.ingest([Annotation((b"It is dark.",), UNKNOWN, 0.0)])  # no label: it may be asked for again
    assert reward.requests(CAPTIONS) == [(b"It is dark.",)]
