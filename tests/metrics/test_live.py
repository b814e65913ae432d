"""The live view: what it shows at which width and height, what it escapes, and how seldom it is drawn."""

import io

import numpy as np
import pytest
from rich.console import Console

from oni_jax.config import RunConfig
from oni_jax.metrics import live
from oni_jax.metrics.live import MAX_PROBLEM_LINES, LiveView
from oni_jax.metrics.panels import sparkline
from tests.metrics.rows import ANSWERS, PAIRS, ROW

RUN = RunConfig(experiment="my_run", train_for_env_steps=1_000_000)
STEERING = ("\x1b[2K", "\x1b[1A", "\x1b[?25l", "\x1b[?25h", "\r")  # rich's own, without colours


class Encoded(io.StringIO):
    """A stream that can't take every character."""

    encoding = "ascii"


def view_of(width: int, height: int = 40, stream: io.StringIO | None = None) -> tuple[LiveView, io.StringIO]:
    stream = stream or io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, height=height, color_system=None)
    return LiveView(RUN, console), stream


def shown(row, width: int, height: int = 40, returns=(1.0, 2.0, 3.0), stream=None, run: RunConfig = RUN) -> str:
    """What a first row puts on the screen."""
    view, stream = view_of(width, height, stream)
    view._run = run
    view._returns.extend(returns)
    view._row = row
    view._draw()
    text = stream.getvalue()
    view.close()
    for control in STEERING:
        text = text.replace(control, "")
    return "\n".join(line.rstrip() for line in text.splitlines())


def words_of(text: str) -> str:
    """What is said, wherever a line was broken."""
    return " ".join(text.split())


@pytest.mark.parametrize("row", [ROW, {**ROW, "answers": ANSWERS}, {**ROW, "answers": PAIRS}])
@pytest.mark.parametrize("width", [1, 8, 20, 40, 80, 120])
def test_it_fits_the_terminal(width, row):
    lines = shown(row, width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < 40


@pytest.mark.parametrize("width", [40, 80, 120])
def test_it_says_it_all(width):
    text = shown({**ROW, "answers": ANSWERS}, width)
    told = words_of(text)
    says = ("my_run", "123,456 of 1 M steps", "0:02:05 gone", "left", "update 30", "lag 1.3 (max 4)", "33.21")
    says += ("learner 1,020 steps/s", "0.25 updates/s", "games 1,043 steps/s", "35 batches/s of 30")
    says += (
        "3 slots full",
        "5 slots free",
        "2 groups paused",
        "37 queries pending",
        "16 in flight",
        "8 gradient steps due",
    )
    says += ("server up", "12 labels/s", "1.2 s a request", "3,412 tokens/s written", "100 held", "2 unreadable")
    says += ("device 12.25 GiB", "limit 139.80 GiB", "peak 13.00 GiB", "77 steps rewarded", "model right in 99%")
    says += ("+ You kill the newt!", "- You see here a rock.", "- It is café time.", "? \\x1b]0;owned\\x07[red]Fido")
    for words in says:
        assert words in told, words
    for waits, share in (("learner for games ", 31), ("inference for games", 20), ("games for actions", 50)):
        assert f"{waits.ljust(19)} {share:3}% █" in text
    lines = text.splitlines()
    newest = lines.index(next(line for line in lines if line.startswith("answers"))) + 1
    assert lines[newest].startswith("+ You find a hidden door.")


@pytest.mark.parametrize("width", [40, 80])
def test_pairs_have_their_label_before_them(width):
    text = shown({**ROW, "answers": PAIRS}, width)
    for lines in ("> You kill the newt!\n  It is dark.", "  It is dark.\n> You kill the newt!"):
        assert lines in text
    assert "= It is dark.\n= It is dark here." in text and "? It is dark.\n? \\x1b[2J" in text
    seen = set()
    for height in range(16, 34):
        low = shown({**ROW, "answers": PAIRS}, width, height=height).splitlines()
        headings = [i for i, line in enumerate(low) if line.startswith("answers")]
        seen.add(len(low) - 1 - headings[0] if headings else 0)
    assert {2, 4} <= seen <= {0, 2, 4, 6, 8}  # none is cut in half


def test_a_row_may_lack_anything():
    full = {**ROW, "answers": ANSWERS}
    assert shown({}, 80, returns=()).split() == ["run", "my_run"]
    for name in full:
        rest = {other: full[other] for other in full if other != name}
        for row in ({name: full[name]}, rest):
            assert "my_run" in shown(row, 80, returns=())


def test_a_server_in_trouble_is_told_with_its_own_words():
    row = {**ROW, "server_state": "waiting for server", "annotation/problem": "unreachable: \x1b[2J" + 40 * "no route "}
    lines = shown(row, 40).splitlines()
    assert any("waiting for server" in line for line in lines)
    (start,) = [i for i, line in enumerate(lines) if "unreachable: \\x1b[2J" in line]
    problem = lines[start : start + MAX_PROBLEM_LINES]
    assert [line[:10] for line in problem] == [" " * 10] * len(problem) and "no route" in problem[-1]
    assert "no route" not in lines[start + MAX_PROBLEM_LINES]


@pytest.mark.parametrize("height", [1, 5, 10, 24])
def test_on_a_low_terminal_the_least_goes_first(height):
    row = {**ROW, "answers": ANSWERS}
    lines = shown(row, 40, height).splitlines()
    assert len(lines) <= max(1, height - 1)
    if height == 24:
        text = "\n".join(lines)
        assert "memory" not in text and "waits" in text and "LLM" in text and "+ You find a hidden door." in text


def test_a_terminal_without_unicode():
    text = shown({**ROW, "answers": ANSWERS}, 60, returns=range(30), stream=Encoded())
    assert text.isascii() and "-- It is caf\\xe9 time." in f"-{text}".replace("\n", "-")
    assert "###" in text and "__" in text


def test_what_is_too_long_ends_with_a_sign():
    text = shown({**ROW, "answers": ANSWERS}, 40)
    assert "[red]Fido[/red] bites…" in text and "all the night" not in text


def test_big_numbers_are_whole_where_it_is_narrow():
    row = {**ROW, "env_steps": 1_234_567_890, "acted_steps_per_sec": 98_765.0, "inference_calls_per_sec": 1250.0}
    row |= {"env_steps_per_sec": 98_765.0, "llm_prompt_tokens_per_sec": 123_456.0, "rewarded_steps": 1_234_567_890}
    row |= {"policy_lag_mean": 123.4, "policy_lag_max": 1000, "secs": 1e7, "labels_held": 12_345_678}
    text = shown(row, 40, returns=(), run=RunConfig(train_for_env_steps=2_000_000_000))
    told = words_of(text)
    assert "1,250 batches/s of 79" in told and "1,234,567,890 of 2,000 M steps" in told and "…" not in text
    assert max(map(len, text.splitlines())) <= 40


def test_a_return_that_is_no_number_is_left_out():
    view, stream = view_of(80)
    for value in (1.0, float("nan"), 3.0):
        view.update({**ROW, "mean_return": value})
        view._due = 0.0
    view.close()
    assert list(view._returns) == [1.0, 3.0] and "1 to 3" in stream.getvalue()


def test_any_name_of_a_run_can_be_shown_without_unicode():
    text = shown(ROW, 80, stream=Encoded(), run=RunConfig(experiment="é{}[red]"))
    assert text.startswith("run       \\xe9{}[red],")


def test_a_curve_in_a_line():
    def curve(points: list[float], width: int) -> str:
        return sparkline(np.array(points), width, ascii_only=False)

    assert curve([0, 7], 8) == "▁█"
    assert curve([0, 0, 7, 7, 3.4, 3.6], 3) == "▁█▅"
    assert curve([5.0] * 10, 4) == "▁" * 4


def test_a_week_s_curve_is_drawn_whole():
    returns = np.sin(np.linspace(0, np.pi, 120_000))
    (line,) = [line for line in shown(ROW, 80, returns=returns).splitlines() if line.startswith("return")]
    curve = line.split()[2]
    half = len(curve) // 2
    assert len(curve) > 30 and "".join(sorted(curve[:half])) == curve[:half] and curve[0] == curve[-1] == "▁"


def test_it_is_drawn_no_more_often_than_a_hundredth_of_the_time_allows(monkeypatch):
    now = 100.0
    monkeypatch.setattr(live.time, "perf_counter", lambda: now)
    view, _ = view_of(80)
    drawn = []

    def draw(*_, **__):
        nonlocal now
        now += 0.5  # as on a slow terminal
        drawn.append(now)

    monkeypatch.setattr(view._live, "update", draw)
    for _ in range(200):
        view.update(ROW)
        now += 1.0
    assert drawn == [100.5, 151.0, 201.5, 252.0]
    view.close()
    assert len(drawn) == 5  # the last row is always shown
