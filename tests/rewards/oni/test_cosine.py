"""cosine-bow: similarity of a message's words to the goal's."""

import jax
import numpy as np
import pytest

from oni_jax.ops.words import words_of
from oni_jax.rewards.base import Seen
from oni_jax.rewards.oni.cosine import CosineScorer
from oni_jax.settings.fields import UserError
from oni_jax.types import CaptionBatch
from tests.rewards.word_vector_files import write_fasttext, write_text

TABLE = {"gold": [1.0, 0.0], "find": [0.0, 1.0], "pieces": [3.0, 4.0], "newt": [-1.0, 0.0], "nowhere": [0.0, 0.0]}
ALL_BYTES = bytes(range(1, 256))


def make(path, goal: str = "Gold!", threshold: float = 0.0) -> CosineScorer:
    return CosineScorer(write_text(path / "a.vec", TABLE), goal, threshold)


def rewards_of(reward: CosineScorer, *messages: bytes) -> list[float]:
    captions = CaptionBatch(messages, np.arange(len(messages), dtype=np.int32)[None])
    features = reward.prepare(captions)
    state = reward.init(jax.random.key(0))
    values = reward.normalise(state, reward.raw_values(state, Seen(captions.index, {}), features))
    assert values.dtype == np.float32 and values.shape == (1, len(messages)) and state == ()
    return values[0].tolist()


def test_words():
    text = "You can't find 18 GOLD pieces_here: -- 'cave'! \xc9t\xe9 \xb2 \xf7"
    assert words_of(text) == "you can't find 18 gold pieces here cave été ²".split()


def test_cosine_of_the_sums(tmp_path):
    reward = make(tmp_path, goal="find the gold")  # (1, 1)
    expected = [7 / 5 / 2**0.5, 1, (3 + 5) / (32**0.5 * 2**0.5), 1 / 2**0.5]
    np.testing.assert_allclose(
        rewards_of(reward, b"3 pieces", b"FIND gold.", b"Pieces, gold", b"gold gold (unknown)"), expected, rtol=1e-6
    )


def test_zero_vectors_get_0(tmp_path):
    reward = make(tmp_path, threshold=-1.0)
    assert rewards_of(reward, b"", b"It is dark.", b"nowhere", b"gold newt", b"\x00\xff\x80", ALL_BYTES) == [0.0] * 6


def test_bytes_are_latin_1(tmp_path):
    path = write_text(tmp_path / "a.vec", {"gold": [1.0, 0.0], "\xfcber": [1.0, 0.0]})
    assert rewards_of(CosineScorer(path, "gold"), b"\xdcBER", "\xfcber".encode()) == [1.0, 0.0]


def test_the_threshold_must_be_passed(tmp_path):
    messages = [b"newt", b"pieces", b"gold", b"find"]
    for threshold, expected in {0.0: [0, 0.6, 1, 0], -1.0: [0, 0.6, 1, 0], 0.7: [0, 0, 1, 0], 1.0: [0] * 4}.items():
        assert rewards_of(make(tmp_path, threshold=threshold), *messages) == pytest.approx(expected), threshold
    assert rewards_of(make(tmp_path, threshold=-0.99), b"pieces newt newt") == pytest.approx([1 / 17**0.5])
    assert rewards_of(make(tmp_path, goal="newt", threshold=-0.99), b"pieces") == pytest.approx([-0.6])


@pytest.mark.parametrize("threshold", [float("nan"), 1.5, float("inf"), -2.0])
def test_a_threshold_that_is_no_cosine_is_refused(tmp_path, threshold):
    with pytest.raises(UserError, match=f"--eps_threshold_quantile {threshold:g}: must be"):
        make(tmp_path, threshold=threshold)


def test_unknown_words_count_where_the_file_has_parts(tmp_path):
    rows = np.random.default_rng(0).normal(size=(2 + 50, 8))
    path = write_fasttext(tmp_path / "a.bin", ["gold", "newt"], rows, (3, 6))
    gold, golden, empty, bytes_ = rewards_of(CosineScorer(path, "gold", -1.0), b"gold", b"golden", b"", ALL_BYTES)
    assert gold == pytest.approx(1) and golden not in (0, 1) and empty == 0 and np.isfinite(bytes_)


def test_mistakes_are_told_before_training(tmp_path):
    for goal in ("Descend!", "nowhere", ""):
        with pytest.raises(UserError, match="has no word of the goal"):
            make(tmp_path, goal=goal).init(jax.random.key(0))
    (tmp_path / "cut.vec").write_text("3 2\ngold 1 2\n")
    cut = CosineScorer(str(tmp_path / "cut.vec"), "gold")
    with pytest.raises(UserError, match="cut off"):
        cut.init(jax.random.key(0))
    with pytest.raises(UserError, match="must name a file"):
        CosineScorer("", "gold")
