"""Numbers and counts of captions."""

import subprocess
import sys

import numpy as np

from oni_jax.envs.base import TEXT_DTYPE, make_step_output
from oni_jax.envs.captions import CaptionTracker, caption_id
from oni_jax.types import EnvSpec

SPEC = EnvSpec({}, num_actions=2, has_captions=True, episode_stats=())


class Stage:
    """Two environments whose captions a test dictates."""

    def __init__(self, spec=SPEC, **kwargs):
        self.out = make_step_output(spec, 2)
        self.tracker = CaptionTracker(spec, 2, **kwargs)
        self.numbers = np.zeros(2, TEXT_DTYPE)

    def show(self, *captions, first=(), ended=(), finals=()):
        """Captions of both; `finals` of those that ended. Returns the new texts."""
        records, texts = self.out.records, self.out.texts
        texts.captions[:] = captions
        for i, caption in zip(ended, finals):
            texts.final_captions[i] = caption
        records["is_first"] = np.isin([0, 1], [*first, *ended])
        records["truncated"] = np.isin([0, 1], ended)
        new = self.tracker.update(self.out, self.numbers)
        assert [number for number, _ in new] == [caption_id(text) for _, text in new]
        return [text for _, text in new]


def test_id():
    assert caption_id(b"You kill it!\0\0\0") == caption_id(b"You kill it!") != caption_id(b"You kill it?")
    ids = {caption_id(b"%d" % i) for i in range(10_000)} | {caption_id(b"")}
    assert len(ids) == 10_001 and 0 < min(ids) and max(ids) < 2**63


def test_id_is_the_same_in_another_process():
    code = "from oni_jax.envs.captions import caption_id; print(caption_id(b'You kill it!'))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert int(output) == caption_id(b"You kill it!")


def test_counts_and_new_captions():
    stage = Stage()
    records, finals, numbers = stage.out.records, stage.out.finals, stage.numbers
    assert stage.show(b"a", b"", first=(0, 1)) == [b"a", b""]
    assert records["caption_count"].tolist() == [1, 1]
    assert stage.show(b"a", b"b") == [b"b"]
    assert records["caption_count"].tolist() == [2, 1]
    assert records["outcome_caption_count"].tolist() == [2, 1]
    assert numbers["caption"].tolist() == numbers["outcome_caption"].tolist() == [caption_id(b"a"), caption_id(b"b")]

    # Game 0 ends on "a", its third; the new episode begins with "a", its first.
    assert stage.show(b"a", b"b", ended=(0,), finals=(b"a",)) == []
    assert records["caption_count"].tolist() == [1, 2]
    assert records["outcome_caption_count"].tolist() == [3, 2]
    assert finals["outcome_caption_count"][0] == finals["caption_count"][0] == 3

    # Both end on captions never seen, and begin with others: as much as a step can bring.
    assert stage.show(b"e", b"f", ended=(0, 1), finals=(b"c", b"d")) == [b"c", b"d", b"e", b"f"]
    assert numbers["outcome_caption"].tolist() == [caption_id(b"c"), caption_id(b"d")]
    assert numbers["caption"].tolist() == [caption_id(b"e"), caption_id(b"f")]
    assert stage.show(b"a", b"f") == []
    assert records["caption_count"].tolist() == [1, 2]


def test_a_caption_may_be_of_any_length():
    assert Stage().show(b"a" * 100_000, b"", first=(0, 1)) == [b"a" * 100_000, b""]


def test_memory_is_bounded():
    stage = Stage(max_known=3)
    stage.show(b"a", b"b", first=(0, 1))
    stage.show(b"c", b"d")
    assert stage.show(b"a", b"d") == [b"a", b"d"]
    assert stage.out.records["caption_count"].tolist() == [2, 2]


def test_environments_without_captions():
    stage = Stage(SPEC._replace(has_captions=False))
    before = stage.out.records.tobytes()
    assert stage.show(b"a", b"b") == []
    assert stage.out.records.tobytes() == before and not stage.numbers["caption"].any()
