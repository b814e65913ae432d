"""Gauges of a run with labels."""

from types import SimpleNamespace
from typing import Any

import pytest

from oni_jax.host.runtime import WaitClock
from oni_jax.training import gauges
from tests.metrics.rows import ANSWERS


def test_rates_of_labels_and_tokens(monkeypatch):
    now = 100.0
    monkeypatch.setattr(gauges.time, "monotonic", lambda: now)
    answers = []
    parts: Any = (
        SimpleNamespace(distributions={}, trajectory_wait=WaitClock(), lookup_wait=WaitClock()),
        SimpleNamespace(gauges=lambda: {"acted_steps": 0, "inference_calls": 0, "ring_slots_full": 2}),
        SimpleNamespace(answers=lambda: tuple(answers)),
    )
    read = gauges.Gauges(*parts)
    read.start(env_steps=500, updates=5)
    counts = {"env_steps": 500, "labels_asked": 10, "answers_unreadable": 1, "annotation/completion_tokens": 100}
    assert "answers" not in read.read(counts)
    now += 5.0
    answers += ANSWERS
    more = {"env_steps": 1000, "labels_asked": 60, "answers_unreadable": 11, "annotation/completion_tokens": 600}
    row = read.read(more)
    assert (row["env_steps_per_sec"], row["labels_per_sec"], row["llm_tokens_per_sec"]) == pytest.approx((100, 8, 100))
    assert row["answers"] == ANSWERS
    assert row["ring_slots_full"] == 2 and "acted_steps" not in row
