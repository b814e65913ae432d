"""Retrieval: the label is the reward; what has none is asked for."""

import numpy as np

from oni_jax.rewards.base import Seen
from oni_jax.rewards.oni.retrieval import RetrievalScorer
from oni_jax.settings.rewards import RewardConfig
from oni_jax.types import Annotation, CaptionBatch
from tests.support.labelled import labelled

CAPTIONS = CaptionBatch([b"You kill the newt!", b"", b"It is dark."], np.array([[0, 1], [2, 0], [1, 1]], np.int32))


def test_labels_become_rewards():
    reward = RetrievalScorer(RewardConfig())
    assert not reward.prepare(CAPTIONS)["values"].any()
    reward.ingest([labelled((b"You kill the newt!",), 1, 0.9), labelled((b"It is dark.",), 0, 0.2)])
    features = reward.prepare(CAPTIONS)
    np.testing.assert_array_equal(features["values"], np.array([[1, 0], [0, 1], [0, 0]], np.float32))
    assert features["values"].dtype == np.float32
    assert reward.raw_values((), Seen(CAPTIONS.index, {}), features) is features["values"]


def test_only_the_unlabelled_are_asked_for_and_never_the_empty():
    reward = RetrievalScorer(RewardConfig())
    assert reward.queries() == []
    reward.observe_captions(CAPTIONS)
    assert reward.queries() == reward.queries() == [(b"You kill the newt!",), (b"It is dark.",)]
    reward.ingest([labelled((b"You kill the newt!",), 1)])
    reward.ingest([Annotation((b"It is dark.",), None)])  # no label: it may be asked for again
    assert reward.queries() == [(b"It is dark.",)]
