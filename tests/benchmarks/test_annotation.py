"""The measurement labels what it says it labels, once each, and its shares are shares."""

from benchmarks import annotation
from benchmarks.samples import sample_messages


def test_every_message_is_unique():
    messages = sample_messages(500) + sample_messages(500, first=500)
    assert len(set(messages)) == 1000


def test_throughput_and_pace_against_the_judge():
    measured = annotation.throughput(annotation.SETTINGS["completions"], 300)
    assert measured["labels_per_sec"] > 0 and measured["cpu_micros_per_label"] >= 0
    paced = annotation.at_pace(annotation.SETTINGS["completions"], 0.5)
    assert 0 < paced["labels_per_sec"] <= 1.01 * annotation.PACE
    assert 0 <= paced["core_fraction"] < 1
