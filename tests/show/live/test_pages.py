"""Pages of the live view: what they show at which width and height, and what they escape."""

import io

import numpy as np
import pytest
from rich.console import Console

from oni_jax.envs.display import COLUMNS, ROWS, Terminal
from oni_jax.settings.run import RunConfig
from oni_jax.show.live.curve import Curve
from oni_jax.show.live.episode import episode_rows
from oni_jax.show.live.pages import EPISODE_PAGE, OVERVIEW_PAGE, QUEUES_PAGE, Content, page
from oni_jax.show.live.panels import CURVES, MAX_LINES, Canvas, curve_value
from oni_jax.show.live.phrases import plain_line
from tests.metrics.rows import ANSWERS, GOALS, PAIRS, ROW

RUN = RunConfig(experiment="my_run", train_for_env_steps=1_000_000)
FOUND = {"secs_left": 903.0, "labels_by": "a judge", "checkpoint_steps": 120_000, "checkpoint_secs": 61.0}
FULL = {**ROW, **FOUND, "answers": ANSWERS}


def playing() -> Terminal:
    return Terminal(np.full((ROWS, COLUMNS), ord("x"), np.uint8), np.full((ROWS, COLUMNS), 7, np.uint8))


class Encoded(io.StringIO):
    """A stream that can't take every character."""

    encoding = "ascii"


def shown(row, width: int, height: int = 40, num_points: int = 3, run: RunConfig = RUN, stream=None, **values) -> str:
    curves = {label: Curve() for label in CURVES}
    for i in range(num_points):
        for curve in curves.values():
            curve.add(1000 * i, float(i))
    console = Console(file=stream or io.StringIO(), force_terminal=True, width=width, height=height)
    values = {"state": "update 30", "has_keys": True, **values}
    content = Content(run, row, curves=curves, **values)  # type: ignore
    lines, episode = page(Canvas(console, width), height, content)
    rows = episode_rows(content.terminal, width, len(episode), has_colors=False) if content.terminal else []
    begins = dict(zip(episode, rows))
    return "\n".join((begins.get(i, "") + line.plain).rstrip() for i, line in enumerate(lines))


def words_of(text: str) -> str:
    """Returns the words, wherever a line was broken."""
    return " ".join(text.split())


@pytest.mark.parametrize("shown_page", [OVERVIEW_PAGE, QUEUES_PAGE, EPISODE_PAGE])
@pytest.mark.parametrize("terminal", [None, playing()])
@pytest.mark.parametrize("answers", [(), ANSWERS, PAIRS, GOALS])
@pytest.mark.parametrize("size", [(1, 1), (8, 5), (20, 10), (40, 24), (80, 23), (110, 30), (140, 49), (300, 90)])
def test_page_fits_the_terminal(size, answers, terminal, shown_page):
    width, height = size
    row = {**FULL, "answers": answers}
    for stream in (io.StringIO(), Encoded()):
        text = shown(row, width, height, shown=shown_page, log=["a line " * 40] * 30, stream=stream, terminal=terminal)
        lines = text.split("\n")
        assert max(map(len, lines)) <= width and len(lines) <= height
        if height > 5 and width > 30:
            assert lines[0].startswith("my_run") and lines[-1].startswith(
                " q  overview" if shown_page == QUEUES_PAGE else " q  queues"
            )


def test_a_small_terminal_shows_all_that_matters():
    text = shown(FULL, 80, 23, log=["games are stepped in C", "warning: a line"])
    lines = text.split("\n")
    assert lines[0] == f"my_run{'update 30':>74}" and lines[1].endswith(" 12%") and lines[1].startswith("█████████░")
    says = ("123,456 of 1 M steps, 1,020 steps/s, 0:02:05 gone, 0:15:03 left", "return 33.21 ▁▅█ 0 to 2")
    says += ("intrinsic 0.0123 a step ▁▅█", "helpful 31% of labels ▁▅█", "entropy 2.12 nats ▁▅█")
    says += ("12 ended, mean length 1,200, depth 1.25, kills 3.5, gold 31",)
    says += ("limited by the environments; would help: --num_workers 8", "labels by a judge, server ok, 100 held, 12/s")
    says += ("checkpoint 120,000 steps, 0:01:01 ago", "+ You find a hidden door.", "log games are stepped in C")
    for words in says:
        assert words in words_of(text), words
    assert "slots" not in text and "tokens" not in text


def test_the_queues_have_a_page():
    text = shown(FULL, 80, 23, shown=QUEUES_PAGE)
    for waits, percent in (("learner for games ", 31), ("inference for games", 20), ("games for actions", 50)):
        assert f"{waits.ljust(19)} {percent:3}% █" in text
    says = ("3 slots full", "5 slots free", "2 groups paused", "37 queries pending", "16 in flight")
    says += ("8 gradient steps due", "lag 1.3 (max 4)", "games 1,043 steps/s", "35 batches/s of 30", "141 asked")
    says += ("1.2 s a request", "3,412 tokens/s written", "device 12.25 GiB", "limit 139.80 GiB", "77 steps rewarded")
    for words in says:
        assert words in words_of(text), words


def test_a_large_terminal_has_charts():
    text = shown(FULL, 140, 49)
    for title in ("return 33.21", "intrinsic 0.0123 a step", "helpful 31% of labels", "entropy 2.12 nats"):
        assert text.count(title) == 1
    assert text.count("2,000 steps") == 4 and "▁▅█ 0 to 2" not in words_of(text)
    assert "2,000 steps" not in shown(FULL, 140, 23) + shown(FULL, 80, 49) + shown(FULL, 140, 49, num_points=1)
    nothing = {name: x for name, x in FULL.items() if name not in ("server_state", "rewarded_steps")}
    assert "intrinsic" not in shown({**nothing, "loss/intrinsic_reward_mean": 0.0}, 140, 49)


@pytest.mark.parametrize(
    "width, height, num_rows",
    [(140, 49, 24), (126, 40, 24), (125, 49, 24), (80, 49, 24), (80, 23, 0), (140, 30, 0), (79, 90, 0)],
)
def test_an_episode_is_shown_whole_or_not_at_all(width, height, num_rows):
    text = shown(FULL, width, height, terminal=playing(), log=["printed"])
    assert text.count("x" * COLUMNS) == num_rows == 24 * ("episode    one of" in text)
    for words in ("return 33.21", "entropy 2.12 nats", "limited by the", "hidden door", "log printed"):
        assert words in words_of(text), words
    assert (text.count("2,000 steps") == 4) == (width >= 126)  # its charts stand on the right, or there are none


def test_an_episode_has_a_page_of_any_size():
    for width, height in ((200, 60), (80, 23), (30, 8)):
        lines = shown(FULL, width, height, shown=EPISODE_PAGE, terminal=playing()).split("\n")
        num_rows = min(24, height - 2)
        assert lines.count("x" * min(width, COLUMNS)) == num_rows and lines[0].startswith("my_run")
        assert lines[-1].startswith(" q  queues    e  overview"[:width])


@pytest.mark.parametrize("width", [40, 80])
def test_pairs_have_their_label_before_them(width):
    row = {**FULL, "answers": PAIRS}
    text = shown(row, width, 80)
    for lines in ("> You kill the newt!\n  It is dark.", "  It is dark.\n> You kill the newt!"):
        assert lines in text
    assert "= It is dark.\n= It is dark here." in text and "? It is dark.\n? \\x1b[2J" in text
    seen = set()
    for height in range(16, 40):
        lines = shown(row, width, height, has_keys=False).split("\n")
        headings = [i for i, line in enumerate(lines) if line.startswith("answers")]
        seen.add(len(lines) - 1 - headings[0] if headings else 0)
    assert {2, 4} <= seen <= {0, 2, 4, 6, 8}  # none is cut in half


def test_suggested_goals_stand_below_their_caption():
    text = shown({**FULL, "answers": GOALS}, 80)
    assert "* you see water.\n    1 goals: drink water\n* you see cow and grass.\n" in text
    assert "    2 goals: eat cow, chop grass" in text


def test_a_row_may_lack_anything():
    assert words_of(
        shown({"env_steps": 0}, 80, num_points=0)
    ) == "my_run update 30 " + "░" * 75 + " 0% 0 of 1 M steps " + ("q queues Ctrl-C saves and leaves")
    for name in FULL:
        rest = {other: FULL[other] for other in FULL if other != name}
        for row in ({name: FULL[name]}, rest, {**FULL, name: float("nan")} if name != "answers" else rest):
            for view in (OVERVIEW_PAGE, QUEUES_PAGE):
                assert "my_run" in shown(row, 80, shown=view)


def test_a_run_without_limits_has_neither_bar_nor_time_left():
    text = shown({**FULL, "secs_left": None}, 80, run=RunConfig(experiment="endless"))
    assert text.split("\n")[1].strip().startswith("123,456 steps, 1,020 steps/s, 0:02:05 gone")
    assert "left" not in text and "░" not in text


def test_intrinsic_return_never_changes_its_meaning():
    """Until the first episodes end it is not known; the reward of a step is shown where there are no returns at all."""
    name = "episode/intrinsic_return/online_cls"
    assert "intrinsic" not in words_of(shown({**FULL, name: float("nan")}, 140, 49, num_points=0))
    assert "intrinsic 1.5 an episode" in words_of(shown({**FULL, name: 1.5}, 80))
    assert curve_value("intrinsic", {**ROW, name: float("nan")}) is None
    assert curve_value("intrinsic", {**ROW, name: 1.5}) == 1.5
    assert curve_value("intrinsic", {**ROW, name: 1.5, "episode/intrinsic_return/rnd": 2.0}) is None
    assert curve_value("intrinsic", ROW) == 0.0123


def test_success_of_short_episodes_is_named_so():
    row = {**FULL, "episode/success": 1.0, "short_episodes": 120.0}
    assert "success 100.0% of episodes up to 120 steps" in words_of(shown(row, 80))
    early = {"episode/success": 1.0, "short_episodes": 120.0}
    assert "success 100.0% of episodes up to 120 steps" in plain_line(early, RUN)
    assert "success 100.0%, depth" in words_of(shown({**FULL, "episode/success": 1.0}, 80))


def test_the_worlds_say_what_they_report():
    told = words_of(shown({**FULL, "episode/success": 0.25}, 80))
    assert "success 25.0%" in told
    crafter = {"episode/unlocked": 4.5, "episode/score": 3.25, "episode/collect_wood": 0.74, "episode/wake_up": 0.001}
    told = words_of(shown({**FULL, **crafter}, 80))
    assert "4.50 achievements, score 3.2%" in told and "achieved collect wood 74%" in told and "wake up" not in told


def test_rewards_say_what_they_report():
    row = {name: x for name, x in FULL.items() if "helpful" not in name}
    assert "helpful" not in shown({**row, "answers": ()}, 80)
    assert "answers for 66% of steps" in shown({**row, "reward/goal_coverage": 0.66}, 80)
    both = {"reward/ellm/goal_coverage": 0.5, "reward/online_cls/helpful_fraction": 0.25}
    assert "answers for 50% of steps (ellm), 25% of labels (online_cls)" in words_of(shown({**row, **both}, 80))
    assert "model agrees by 50% (ellm)" in words_of(shown({**row, "reward/ellm/goals_agreement": 0.5}, 80))
    returns = {"episode/intrinsic_return/online_cls": 1.5}
    assert "intrinsic 1.5 an episode" in words_of(shown({**row, **returns}, 80))
    returns |= {"episode/intrinsic_return/rnd": 2.0}
    assert "intrinsic 1.5 (online_cls), 2 (rnd) an episode" in words_of(shown({**row, **returns}, 80))


def test_a_server_in_trouble_is_shown_with_the_server_s_words():
    row = {**FULL, "server_state": "waiting for server"}
    row |= {"annotation/problem": "unreachable: \x1b[2J" + 60 * "no route "}
    lines = shown(row, 80).split("\n")
    (start,) = [i for i, line in enumerate(lines) if "unreachable: \\x1b[2J" in line]
    problem = lines[start : start + MAX_LINES]
    assert [line[:11] for line in problem] == [" " * 11] * MAX_LINES and "no route" in problem[-1]
    assert "no route" not in lines[start + MAX_LINES] and any("waiting for server" in line for line in lines)


def test_a_terminal_without_unicode():
    text = shown(FULL, 60, num_points=30, stream=Encoded(), log=["café"])
    assert text.isascii() and "- It is caf\\xe9 time.\n" in text and "caf\\xe9\n" in text
    assert "@" in text and "##" in text


def test_long_lines_end_with_a_sign():
    text = shown(FULL, 40)
    assert "[red]Fido[/red] bites…" in text and "all the night" not in text and "? \\x1b]0;owned\\x07" in text


def test_any_name_of_a_run_can_be_shown_without_unicode():
    assert shown(FULL, 80, stream=Encoded(), run=RunConfig(experiment="é{}[red]")).startswith("\\xe9{}[red] ")
