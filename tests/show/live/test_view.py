"""Lines where there is no terminal, the choice of a stream's view, and the time left."""

import io
import re

import pytest

from oni_jax.settings.run import RunConfig
from oni_jax.show.live import view as views
from oni_jax.show.live.live import LiveView
from oni_jax.show.live.pace import Pace
from oni_jax.show.live.phrases import clock
from oni_jax.show.live.view import build_view
from tests.metrics.rows import ANSWERS, ROW

RUN = RunConfig(train_for_env_steps=1_000_000)


def test_a_plain_line_says_what_matters():
    stream = io.StringIO()
    view = build_view(RUN, stream=stream)
    view.update({**ROW, "env_steps": 113_456, "secs": 115.0})
    view.update({**ROW, "answers": ANSWERS})
    view.close()
    _, line = stream.getvalue().splitlines()
    expected = "123,456 of 1 M steps | 1,020 steps/s | 0:14:37 left | return 33.21 | intrinsic 0.0123 a step | "
    assert line == expected + "helpful 31% of labels | depth 1.25 | limited by the environments"


def test_a_plain_line_is_short_whatever_it_says():
    big = {name: x * 1e6 if isinstance(x, float) else x for name, x in ROW.items()}
    big |= {"env_steps": 1_234_567_890_123, "server_state": "waiting for server, for a long time"}
    big |= {"limited_by": "the cores, which all parts share: a smaller --hidden_size, or an accelerator"}
    big |= {f"reward/{name * 9}/helpful_fraction": 0.5 for name in ("one", "two", "three")}
    stream = io.StringIO()
    for run in (RunConfig(), RUN):
        view = build_view(run, stream=stream)
        view.update(big)
        view.close()
    for line in stream.getvalue().splitlines():
        assert 100 < len(line) < 160 and line.startswith("1,234,567,890,123")
        assert line.endswith(" | limited by the cores, which all parts share") and "return" in line


def test_plain_line_every_30_s(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(views.time, "monotonic", lambda: now)
    stream = io.StringIO()
    view = build_view(RUN, stream=stream)
    for number in range(21):  # 100 s
        view.update({"env_steps": number})
        now += 5
    view.close()
    shown = re.findall(r"^(\d+) of", stream.getvalue(), re.MULTILINE)
    assert shown == ["0", "6", "12", "18", "20"]  # the last row is always shown


def test_a_row_may_lack_anything():
    for name in ROW:
        for row in ({name: ROW[name]}, {other: ROW[other] for other in ROW if other != name}, {**ROW, name: None}):
            build_view(RUN, stream=io.StringIO()).update(row)


def rows_of(*numbers: tuple[float, int, int]):
    return [{"secs": secs, "env_steps": steps, "compilations": number} for secs, steps, number in numbers]


def secs_left(run: RunConfig, *numbers) -> float | None:
    pace = Pace(run)
    for row in rows_of(*numbers):
        pace.add(row)
    return pace.secs_left()


def test_time_left_is_without_the_time_of_compiling():
    run = RunConfig(train_for_env_steps=2000)
    assert secs_left(run, (60, 100, 9)) is None  # nothing but compiling so far
    assert secs_left(run, (60, 100, 9), (70, 200, 9)) == 180
    assert secs_left(run, (60, 100, 9), (70, 200, 9), (170, 300, 11)) == 170  # another compilation
    assert secs_left(run, (60, 100, 9), (70, 200, 9), (170, 300, 11), (180, 500, 11)) == 100


def test_time_left_is_by_the_recent_pace():
    slow = [(float(secs), secs, 1) for secs in range(0, 1001, 50)]
    fast = [(1000.0 + secs, 1000 + 10 * secs, 1) for secs in range(50, 601, 50)]
    assert secs_left(RunConfig(train_for_env_steps=17_000), *slow, *fast) == 1000


def test_time_left_is_that_of_the_nearer_limit():
    rows = (0, 0, 1), (100, 500, 1)
    assert secs_left(RunConfig(train_for_env_steps=1000), *rows) == 100
    assert secs_left(RunConfig(train_for_env_steps=1000, train_for_seconds=150.0), *rows) == 50
    assert secs_left(RunConfig(train_for_seconds=50.0), *rows) == 0
    assert secs_left(RunConfig(), *rows) is None


def test_a_clock_of_days():
    assert clock(3725) == "1:02:05"
    assert (clock(86400 + 7200), clock(2 * 86400)) == ("1 day 2 h", "2 days 0 h")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("term, live", [("xterm", True), ("dumb", False), ("unknown", False), ("", False)])
def test_a_terminal_that_can_draw_gets_the_live_view(monkeypatch, term, live):
    monkeypatch.setenv("TERM", term)
    view = build_view(RunConfig(), stream=Terminal())
    assert isinstance(view, LiveView) == live
    view.close()
