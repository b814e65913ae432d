"""What is shown where there is no terminal, and which view a stream gets."""

import io
import sys

from oni_jax import metrics
from oni_jax.config import RunConfig
from oni_jax.metrics.live import LiveProgress
from oni_jax.metrics.progress import clock, describe, secs_left
from tests.metrics.rows import ROW


def test_plain_lines_say_it_all():
    stream = io.StringIO()
    view = metrics.build_progress(RunConfig(train_for_env_steps=1_000_000), stream)
    view.update(ROW)
    view.close()
    assert stream.getvalue().count("\n") == 1
    shown = ("123,456", "12.3%", "1,020", "990", "33.21", "12 episodes", "100 held", "141 asked", "2 unreadable")
    shown += ("1 failed", "server up, 37 queued, ", "learner for games 31%", "lag 1.3", "0:02:05 gone", "left")
    for text in shown:
        assert text in stream.getvalue(), text


def test_a_missing_server_is_told():
    shown = dict(describe({**ROW, "server_state": "waiting for server"}, RunConfig()))
    assert shown["labels"].startswith("waiting for server, 37 queued, 100 held")


def test_a_row_may_lack_anything():
    assert describe({}, RunConfig()) == []
    for name in ROW:
        describe({name: ROW[name]}, RunConfig())
        describe({other: ROW[other] for other in ROW if other != name}, RunConfig())


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


def test_a_terminal_gets_the_live_view(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    view = metrics.build_progress(RunConfig(), Terminal())
    assert isinstance(view, LiveProgress)
    view.close()
    monkeypatch.setenv("TERM", "dumb")
    assert not isinstance(metrics.build_progress(RunConfig(), Terminal()), LiveProgress)


def test_without_rich_a_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich.live", None)
    monkeypatch.delitem(sys.modules, "oni_jax.metrics.live")
    stream = Terminal()
    view = metrics.build_progress(RunConfig(), stream)
    view.update(ROW)
    assert "123,456" in stream.getvalue()
