"""The live view of a process on a real terminal: a pseudoterminal with keys, resized, stopped, taken away."""

import os
import pathlib
import select
import termios
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.show.live.terminals import Grid, Terminal
from tests.support.pseudoterminal import DEADLINE_SECS

PROGRAM = textwrap.dedent("""
    import os, signal, sys, threading, time
    from contextlib import closing
    from oni_jax.config import RunConfig
    from oni_jax.envs.display import Canvas
    from oni_jax.host.files import keep_printing
    from oni_jax.host.progress import tracked
    from oni_jax.show.live import live
    from oni_jax.show.live.view import build_view
    from tests.metrics.rows import ANSWERS, ROW

    live.MAX_FRACTION = 1.0  # every row is drawn
    clock, ahead = time.monotonic, 0.0
    def monotonic():
        if meanwhile and threading.current_thread().name == "view":
            meanwhile.pop()()
        return clock() + ahead
    meanwhile = []  # done while the view looks at what there is
    time.monotonic = monotonic
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    keep_printing()
    streams = sys.stdout, sys.stderr
    folder, words = sys.argv[1], open(int(sys.argv[2]))
    looks = [None]
    print("before the view")
    run = RunConfig(experiment="my_run", train_for_env_steps=1_000_000, log_every_sec=0.1)
    try:
        with closing(build_view(run, folder, "rule-based judge, not an LLM", terminal=lambda: looks[-1])) as view:
            os.write(2, b".")
            for number, word in enumerate(words):
                word = word.strip()
                row = {**ROW, "answers": ANSWERS, "env_steps": 1000 * number, "updates": 1000 + number}
                if word == "row":
                    view.update(row)
                elif word == "row meanwhile":
                    meanwhile.append(lambda row=row: view.update(row))
                elif word.startswith("look"):
                    canvas = Canvas()
                    canvas.write(0, 0, word)
                    canvas.write(12, 40, "@ hero", 9)
                    canvas.write(23, 70, "last row")
                    looks.append(canvas.terminal())
                elif word == "quiet":
                    ahead += 3600.0
                elif word.startswith("print"):
                    print(word)
                elif word.startswith("progress"):
                    for step in tracked(range(2), word, 2):
                        words.readline()
                elif word == "write":
                    os.write(1, b"one of another process\\r\\n" * 3)
                elif word == "warn":
                    print("a warning", file=sys.stderr)
                else:
                    raise ValueError("it failed")
                os.write(2, b".")
    except ValueError as error:
        print(error, (sys.stdout, sys.stderr) == streams)
""")


class Program(Terminal):
    """The program above, which acts by word."""

    def __init__(self, folder: pathlib.Path, columns: int, rows: int):
        super().__init__(columns, rows)
        reading, self.words = os.pipe()
        self.start(["-c", PROGRAM, str(folder), str(reading)], pass_fds=[reading])
        os.close(reading)
        self.said = ""
        self._wait("to start")

    def tell(self, word: str, *shown: str, **options: Any) -> str:
        """Returns when the program has done it, and shows what it is to show; see `shows`."""
        os.write(self.words, f"{word}\n".encode())
        self._wait(word)
        return self.shows(*shown, **options) if shown else ""

    def _wait(self, what: str) -> None:
        assert self.process.stderr
        said, deadline = b"", time.monotonic() + DEADLINE_SECS
        while not said.endswith(b"."):
            self.read()
            assert time.monotonic() < deadline, f"{what} is not done"
            if select.select([self.process.stderr], [], [], 0.1)[0]:
                more = os.read(self.process.stderr.fileno(), 1000)
                assert more, said
                said += more
        self.said = said.decode()

    def close(self) -> None:
        os.close(self.words)
        super().close()


@pytest.fixture
def program(tmp_path) -> Iterator[Program]:
    started = Program(tmp_path, 80, 24)
    yield started
    started.close()


def check_rows(grid: Grid) -> None:
    """The first row is the first of a page, the footer stands above the last row, which is empty."""
    assert grid.rows[0].startswith("my_run") and "update 1,00" in grid.rows[0]
    assert grid.rows[-2].startswith(" q  ") and grid.rows[-1] == ""
    for part in ("my_run", "episodes ", "limited by", "answers ", " q  "):
        assert sum(row.startswith(part) for row in grid.rows) == 1, grid.text()


def test_seconds_are_counted_while_it_compiles(program):
    text = program.shows("compiling, 1 s")
    assert text.rstrip() == "before the view\ncompiling, 1 s"
    program.tell("print one", "before the view\nprint one\ncompiling, ")
    program.shows("compiling, 4 s")
    program.tell("row", "update 1,001")
    assert not any("compiling" in line for line in [*program.grid.history, *program.grid.rows])
    assert "before the view" in program.grid.history and "print one" in program.grid.history


def test_work_before_the_first_row_is_shown_instead_of_compiling(program):
    program.shows("compiling, 1 s")
    os.write(program.words, b"progress of maps\n")
    text = program.shows("progress of maps: 0 of 2")
    assert text.rstrip() == "before the view\nprogress of maps: 0 of 2"
    time.sleep(0.6)
    os.write(program.words, b"\n")
    program.shows("progress of maps: 1 of 2, 1 s left")
    assert program.tell("", "compiling, 1 s").rstrip() == "before the view\ncompiling, 1 s"
    program.tell("row", "update 1,001", until=lambda text: "maps" not in text)


def test_every_size_gets_another_page(program):
    small = program.tell("row", "update 1,000")
    check_rows(program.grid)
    for text in ("labels by  rule-based judge, not an LLM", "+ You find a hidden door."):
        assert text in small
    small = program.tell("row", "update 1,001")
    program.resize(140, 50)
    large = program.shows("hidden door", " q ", until=lambda text: "1,000 steps" in text)
    check_rows(program.grid)
    assert large.count(" 1,000 steps") >= 4 and max(map(len, large.split("\n"))) > 130  # charts
    program.resize(20, 10)
    tiny = program.shows("my_run", " q ")
    assert len(tiny.split("\n")) == 10 and "return" in tiny
    program.resize(80, 24)
    assert program.shows("hidden door", " q ", until=lambda text: text == small)


def test_a_key_shows_the_queues(program):
    overview = program.tell("row", "update 1,000", " q  queues")
    program.type("xq")  # not echoed
    queues = program.shows("3 slots full", " q  overview")
    assert "learner for games    31% ██████░" in queues and "answers" not in queues
    program.type("q")
    assert program.shows(" q  queues") == overview
    program.type("q")
    program.shows(" q  overview")
    assert "3 slots full" in program.tell("row", "update 1,001")


def test_an_episode_stands_where_there_is_room_for_it(program):
    program.resize(140, 50)
    program.tell("row")
    charts = program.tell("row", "update 1,001")
    program.type("e")  # no key without an episode
    large = program.tell("look 1", "look 1", " e  episode")
    assert "episode    one of" in large and " e " not in charts
    (first,) = [i for i, row in enumerate(program.grid.rows) if row.startswith("look 1")]
    assert program.grid.rows[first + 12][40:46] == "@ hero" and program.grid.rows[first + 23][70:78] == "last row"
    assert "return 33.21" in program.grid.rows[first][82:] and large.count(" 1,000 steps") == 4
    program.raw = b""
    assert program.tell("look 2", "look 2") == large.replace("look 1", "look 2")
    assert len(program.raw) < 500  # the changes, and no page
    check_rows(program.grid)


@pytest.mark.slow
def test_a_small_terminal_has_a_key_for_the_episode(program):
    program.tell("look 1")
    overview = program.tell("row", "update 1,001", " e  episode")
    assert "look" not in overview
    program.tell("look 2")
    time.sleep(2.0)
    assert program.grid.text() == overview  # it isn't drawn
    program.type("e")
    text = program.shows("look 2", " e  overview")
    assert "@ hero" in text and "last row" in text.split("\n")[-3] and "return" not in text
    assert program.tell("look 3", "look 3") == text.replace("look 2", "look 3")
    program.resize(40, 12)
    assert "return" not in program.shows("look 3", " e  overview")
    program.resize(80, 24)
    assert program.shows("look 3", "last row", " q ") == text.replace("look 2", "look 3")
    program.type("q")
    assert "look" not in program.shows("3 slots full", " e  episode")
    program.type("q")
    assert program.shows(" q  queues") == overview


def test_an_episode_outlives_any_size(program):
    program.tell("look 1")
    program.tell("row")
    program.tell("row")
    program.resize(140, 50)
    large = program.shows("look 1", " q ", until=lambda text: "2,000 steps" in text)
    program.resize(20, 10)
    assert "look" not in program.shows("my_run", " q ")
    program.resize(90, 50)
    middle = program.shows("look 1", "@ hero", " q ")
    assert "2,000 steps" not in middle and "██" in middle  # curves in a line each
    program.resize(140, 50)
    assert program.shows("look 1", until=lambda text: text == large)
    check_rows(program.grid)


def test_printed_lines_scroll_off_above_the_view(program):
    program.tell("row", "update 1,000")
    for number in range(30):
        program.tell(f"print {number} {'wide ' * number}")
    program.shows("log        print ", "print 29")
    check_rows(program.grid)
    history = "".join(line.ljust(80) if len(line) == 80 else f"{line}\n" for line in program.grid.history)
    printed = [line.strip() for line in history.split("\n") if line.startswith("print")]
    assert printed == [f"print {number} {'wide ' * number}".strip() for number in range(30)]
    assert not any(line.startswith("my_run") for line in program.grid.history)
    program.tell("warn")
    assert program.said == "a warning\n."  # went to a separate file


def test_the_first_row_may_come_while_the_view_looks(program):
    program.shows("compiling")
    program.tell("row meanwhile", "update 1,000", " q  queues")
    check_rows(program.grid)
    assert not any(line.startswith("my_run") for line in program.grid.history)


def test_next_drawing_removes_foreign_output(program):
    program.tell("row", "update 1,000")
    program.tell("write", "another process")
    program.tell("row", "update 1,002")
    check_rows(program.grid)
    assert "another process" not in program.grid.text()


def test_the_newest_checkpoint_is_shown(program, tmp_path):
    (tmp_path / "checkpoints" / "2048").mkdir(parents=True)
    (tmp_path / "checkpoints" / "512").mkdir()
    (tmp_path / "checkpoints" / "4096.orbax-checkpoint-tmp").mkdir()
    os.utime(tmp_path / "checkpoints" / "2048", (time.time() - 61, time.time() - 61))
    text = program.tell("row", "checkpoint 2,048 steps, 0:01:0")
    assert "ago, before this start" in " ".join(text.split())
    os.utime(tmp_path / "checkpoints" / "2048")
    program.tell("row", "checkpoint 2,048 steps, 0:00:0", until=lambda text: "before this start" not in text)


def test_a_run_without_rows_says_so(program):
    program.tell("row", "update 1,000")
    program.tell("quiet", "no update for 36")
    program.tell("row", "update 1,002")


def test_a_shell_may_have_the_terminal_in_between(program):
    program.tell("row", "update 1,000", " q  queues")
    assert not program.is_restored()
    termios.tcsetattr(program.theirs, termios.TCSANOW, program.before)  # as a shell does after Ctrl-Z
    deadline = time.monotonic() + DEADLINE_SECS
    while program.is_restored():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    program.type("q")
    program.shows(" q  overview")


def test_the_end_leaves_the_last_page_and_the_terminal_as_it_was(program):
    program.tell("row")
    program.type("q")
    program.shows(" q  overview")
    os.write(program.words, b"fail\n")
    assert program.ended() == 0 and program.is_restored()
    lines = program.grid.text().rstrip("\n").split("\n")
    assert lines[-1] == "it failed True" and " q " not in program.grid.text()
    assert "- You see here a rock." in lines
    assert "\x1b[?" not in program.raw.decode()  # nothing that a killed process would leave behind


def test_a_stopped_terminal_stops_nothing(program):
    program.tell("row", "update 1,000")
    termios.tcflow(program.theirs, termios.TCOOFF)
    time.sleep(0.2)
    program.tell("row")
    for number in range(3):
        program.tell(f"print {number}")
    assert "update 1,001" not in program.grid.text()
    termios.tcflow(program.theirs, termios.TCOON)
    program.shows("update 1,001", "print 2")


def test_a_terminal_that_is_gone_ends_nothing(program):
    program.tell("row")
    os.close(program.ours)
    program.ours = os.open(os.devnull, os.O_RDONLY)
    program.grid = Grid(80, 24)
    program.tell("row")
    program.tell("print")
    os.close(program.words)
    program.words = os.open(os.devnull, os.O_WRONLY)
    assert program.process.wait(DEADLINE_SECS) == 0


STUCK = """
import ctypes, os, sys
from oni_jax.show.live.keyboard import Keyboard
from oni_jax.host.runtime import StopRequest
with StopRequest().installed():
    Keyboard().listen()
    os.write(1, b"stuck")
    lock, c = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    while True:
        c.pthread_mutex_lock(lock)  # for ever the second time, as a program that compiles
"""


def test_leaving_at_once_restores_the_terminal():
    terminal = Terminal(80, 24)
    terminal.start(["-c", STUCK])
    try:
        terminal.shows("stuck")
        assert not terminal.is_restored()
        for _ in range(2):
            terminal.type("\x03")
            time.sleep(0.3)  # two that are pending are one
        assert terminal.ended() == 130 and terminal.is_restored()
    finally:
        terminal.close()
