"""What is shown where there is no terminal, and which view a stream gets."""

import io

import pytest

from oni_jax.config import RunConfig
from oni_jax.metrics.live import LiveView
from oni_jax.metrics.phrases import clock, phrases, secs_left
from oni_jax.metrics.view import build_view
from tests.metrics.rows import ROW


def test_plain_lines_say_it_all():
    stream = io.StringIO()
    view = build_view(RunConfig(train_for_env_steps=1_000_000), stream)
    view.update(ROW)
    view.close()
    assert stream.getvalue().count("\n") == 1
    shown = ("run default_experiment, 123,456 of 1 M steps, 0:02:05 gone, ", " left, update 30, lag 1.3 (max 4) | ")
    shown += ("return 33.21 | episodes 12 ended, ", "waits learner for games 31%, ", "LLM server up, 12 labels/s, ")
    shown += (
        "learner 1,020 steps/s",
        "37 queries pending",
        "100 held",
        "141 asked",
        "2 unreadable",
        "1 requests failed",
    )
    for text in shown:
        assert text in stream.getvalue(), text


def test_a_missing_server_is_told():
    shown = phrases({**ROW, "server_state": "waiting for server"}, RunConfig())
    assert shown["LLM"][0][0] == "waiting for server"


def test_success_is_shown_where_there_is_one():
    assert ("success 25.0%", "") in phrases({**ROW, "episode/success": 0.25}, RunConfig())["episodes"]
    assert not any("success" in text for text, _ in phrases(ROW, RunConfig())["episodes"])


def test_a_row_may_lack_anything():
    assert [label for label, told in phrases({}, RunConfig()).items() if told] == ["run"]
    for name in ROW:
        phrases({name: ROW[name]}, RunConfig())
        phrases({other: ROW[other] for other in ROW if other != name}, RunConfig())
        phrases({**ROW, name: float("nan")}, RunConfig())


def test_time_left_is_that_of_the_nearer_limit():
    known = {"secs": 100.0, "env_steps": 500, "env_steps_per_sec_overall": 5.0}
    assert secs_left(known, RunConfig(train_for_env_steps=1000)) == 100
    assert secs_left(known, RunConfig(train_for_env_steps=1000, train_for_seconds=150.0)) == 50
    assert secs_left(known, RunConfig(train_for_seconds=50.0)) == 0
    assert secs_left({"env_steps": 0}, RunConfig()) is None


def test_a_clock_of_days():
    assert clock(3725) == "1:02:05"
    assert (clock(86400 + 7200), clock(2 * 86400)) == ("1 day 2 h", "2 days 0 h")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("term, live", [("xterm", True), ("dumb", False), ("unknown", False), ("", False)])
def test_a_terminal_that_can_draw_gets_the_live_view(monkeypatch, term, live):
    monkeypatch.setenv("TERM", term)
    view = build_view(RunConfig(), Terminal())
    assert isinstance(view, LiveView) == live
    view.close()
