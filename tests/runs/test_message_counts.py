"""Messages met are counted, within bounds, and the counts outlive the run."""

import numpy as np
import pytest

from oni_jax.runs.message_counts import FILE_NAME, MessageCounts
from oni_jax.settings.fields import UserError
from oni_jax.types import CaptionBatch
from tests.support.full_disk import full_disk

ALL_BYTES = bytes(range(1, 256))


def add(counts: MessageCounts, *steps: bytes) -> None:
    messages = list(dict.fromkeys(steps))
    counts.add(CaptionBatch(messages, np.array([messages.index(message) for message in steps], np.int32)[None]))


def restored(folder) -> MessageCounts:
    counts = MessageCounts()
    counts.restore(str(folder))
    return counts


@pytest.mark.parametrize("steps", [(), (b"",), (b"", b"a", b"", ALL_BYTES), (b"a", b"\n,\"'")])
def test_counts_outlive_the_run(tmp_path, steps):
    counts = MessageCounts()
    if steps:
        add(counts, *steps)
    counts.save(str(tmp_path))
    assert restored(tmp_path).counts() == {message: steps.count(message) for message in set(steps)}


def test_batches_add_up():
    counts = MessageCounts()
    add(counts, b"a", b"b", b"a")
    add(counts, b"c", b"a")
    assert counts.counts() == {b"a": 3, b"b": 1, b"c": 1}


def test_the_rarer_half_gives_way():
    counts = MessageCounts(capacity=4)
    add(counts, b"a", b"b", b"a", b"b", b"c", b"d")
    assert len(counts.counts()) == 4
    add(counts, b"e")
    assert counts.counts() == {b"a": 2, b"b": 2}


def test_counts_without_a_file_begin_at_0(tmp_path):
    assert restored(tmp_path).counts() == {}


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(UserError, match=FILE_NAME):
        restored(tmp_path)


def test_a_full_disk_ends_no_run(tmp_path, capsys):
    MessageCounts().save(str(tmp_path / "missing"))
    assert "warning" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_counts_of_before(tmp_path, capsys):
    counts = MessageCounts()
    add(counts, b"a")
    counts.save(str(tmp_path))
    add(counts, *(b"%d" % i for i in range(1000)))
    with full_disk(5000):
        counts.save(str(tmp_path))
    assert capsys.readouterr().out.count("\n") == 1
    assert restored(tmp_path).counts() == {b"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
