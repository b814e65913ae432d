"""Numbers and counts of captions."""

import subprocess
import sys

import numpy as np
import pytest

from oni_jax.envs.base import StepOutput, record_dtype
from oni_jax.envs.captions import CaptionTracker, caption_id
from oni_jax.types import ArraySpec, EnvSpec

SPEC = EnvSpec({"message": ArraySpec((8,), "uint8")}, num_actions=2, caption="message", episode_stats=())


class Stage:
    """Two environments whose messages a test dictates."""

    def __init__(self, **kwargs):
        dtype = record_dtype(SPEC)
        self.out = StepOutput(np.zeros(2, dtype), np.zeros(2, dtype), np.zeros((2, 0), np.float32))
        self.tracker = CaptionTracker(2, "message", **kwargs)
        self.new_ids = np.zeros(4, np.int64)
        self.new_messages = np.full((4, 8), 7, np.uint8)

    def show(self, *messages, first=(), ended=(), finals=()):
        """Messages of both; `finals` of those that ended. Returns the new captions."""
        records = self.out.records
        for i, message in enumerate(messages):
            records["message"][i] = np.frombuffer(message.ljust(8, b"\0"), np.uint8)
        for i, message in zip(ended, finals):
            self.out.finals["message"][i] = np.frombuffer(message.ljust(8, b"\0"), np.uint8)
        records["is_first"] = np.isin([0, 1], [*first, *ended])
        records["truncated"] = np.isin([0, 1], ended)
        num_new = self.tracker.update(self.out, self.new_ids, self.new_messages)
        new = [row.tobytes().rstrip(b"\0") for row in self.new_messages[:num_new]]
        assert self.new_ids[:num_new].tolist() == [caption_id(text) for text in new]
        return new


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
    records, finals = stage.out.records, stage.out.finals
    assert stage.show(b"a", b"", first=(0, 1)) == [b"a", b""]
    assert records["caption_count"].tolist() == [1, 1]
    assert stage.show(b"a", b"b") == [b"b"]
    assert records["caption_count"].tolist() == [2, 1]
    assert records["outcome_caption_count"].tolist() == [2, 1]
    assert (
        records["caption_id"].tolist() == records["outcome_caption_id"].tolist() == [caption_id(b"a"), caption_id(b"b")]
    )

    # Game 0 ends on "a", its third; the new episode begins with "a", its first.
    assert stage.show(b"a", b"b", ended=(0,), finals=(b"a",)) == []
    assert records["caption_count"].tolist() == [1, 2]
    assert records["outcome_caption_count"].tolist() == [3, 2]
    assert finals["outcome_caption_count"][0] == finals["caption_count"][0] == 3
    assert finals["outcome_caption_id"][0] == finals["caption_id"][0] == caption_id(b"a")

    # Both end on captions never seen, and begin with others: as much as a step can bring.
    assert stage.show(b"e", b"f", ended=(0, 1), finals=(b"c", b"d")) == [b"c", b"d", b"e", b"f"]
    assert records["outcome_caption_id"].tolist() == [caption_id(b"c"), caption_id(b"d")]
    assert records["caption_id"].tolist() == [caption_id(b"e"), caption_id(b"f")]
    assert stage.show(b"a", b"f") == []
    assert records["caption_count"].tolist() == [1, 2]


def test_memory_is_bounded():
    stage = Stage(max_known=3)
    stage.show(b"a", b"b", first=(0, 1))
    stage.show(b"c", b"d")
    assert stage.show(b"a", b"d") == [b"a", b"d"]
    assert stage.out.records["caption_count"].tolist() == [2, 2]


def test_too_little_room():
    stage = Stage()
    with pytest.raises(ValueError, match="room"):
        stage.tracker.update(stage.out, np.zeros(3, np.int64), np.zeros((3, 8), np.uint8))


def test_without_captions():
    stage = Stage()
    before = stage.out.records.tobytes()
    assert CaptionTracker(2, None).update(stage.out, stage.new_ids, stage.new_messages) == 0
    assert stage.out.records.tobytes() == before
