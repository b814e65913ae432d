"""The live view of a run, drawn by a separate thread for less than 0.2 % of a core."""

import collections
import contextlib
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable

from rich.console import Console

from oni_jax.envs.display import Terminal
from oni_jax.host.run_files import CHECKPOINTS, saved_steps
from oni_jax.metrics.rows import Row, finite
from oni_jax.settings.fields import printable
from oni_jax.settings.run import RunConfig
from oni_jax.show.live.curve import Curve
from oni_jax.show.live.episode import episode_rows
from oni_jax.show.live.keyboard import Keyboard
from oni_jax.show.live.pages import OVERVIEW_PAGE, Content, page
from oni_jax.show.live.panels import CURVES, Canvas, curve_value
from oni_jax.show.live.screen import Printed, Screen
from oni_jax.show.live.view import PlainView

# Fractions of a core for drawing pages, and episodes on them; the rest is for looking at keys and size.
MAX_FRACTION, EPISODE_FRACTION = 0.0012, 0.0005
EPISODE_SECS = 1.0  # shortest interval of looks at the episode
TICK_SECS = 1.0  # interval of looks at the terminal's size
PRINT_SECS = 0.5  # shortest interval of drawings for printed lines
QUIET_SECS = 20.0  # time without a row, after which the view says so
LINES_KEPT = 50  # number of kept printed lines
CLOSE_SECS = 2.0  # time for a terminal that takes no text


class LiveView(PlainView):
    """A view that fills the terminal. What is printed scrolls off above it, and its newest lines are shown, too.

    Until the first row, it is a line with what is done, or the seconds that the program compiles for. From then on it
    is drawn when a row comes, but not before the CPU time of the last drawing is MAX_FRACTION of the time since; and at
    once for a key, a printed line, or another size of the terminal. Between, an episode on it is drawn about once a
    second.

    Args:
        run: settings.
        console: of the terminal.
        folder: of the run, whose checkpoints are looked at.
        labels_by: who makes the labels, in words.
        terminal: see `World.terminal`; asked only while its episode is shown, and for the first one.
    """

    def __init__(
        self,
        run: RunConfig,
        console: Console,
        folder: str = "",
        labels_by: str = "",
        terminal: Callable[[], Terminal | None] = lambda: None,
    ):
        super().__init__(run, console.file)
        self._console, self._screen = console, Screen(console)
        self._folder = folder
        self._found: Row = {"labels_by": printable(labels_by)}
        self._row: Row = {}  # the newest one
        self._content = Content(run, {}, "", {label: Curve() for label in CURVES}, collections.deque(maxlen=LINES_KEPT))
        self._terminal = terminal
        terminal()  # now: a world that compiles for it does so with the rest
        self._episode, self._episode_rows = range(0), list[str]()  # the page's lines with the episode, its rows
        self._episode_due = 0.0
        self._row_at, self._started_at = time.monotonic(), time.time()
        self._doing = ""  # work named instead of compiling
        self._due, self._drawn_at, self._drawn_state, self._is_new = 0.0, 0.0, "", True
        self._printed: collections.deque[str] = collections.deque()  # not on the terminal yet
        self._lock = threading.Lock()  # lock for all that is shown
        self._closing, self._closed, self._streams = False, False, (sys.stdout, sys.stderr)
        self._wakes, self._wake_end = os.pipe()
        os.set_blocking(self._wake_end, False)
        sys.stdout = Printed(sys.stdout, self._take, self._show_progress)
        if sys.stderr.isatty():  # a file's lines do not belong above the view
            sys.stderr = Printed(sys.stderr, self._take)
        self._thread = threading.Thread(target=self._run_thread, name="view", daemon=True)
        self._thread.start()

    def update(self, row: Row) -> None:
        if not self._thread.is_alive():
            super().update(row)
            return
        known = finite(row)
        with self._lock:
            self._pace.add(row)
            self._row = {**row, "secs_left": self._pace.secs_left(), **self._found}
            self._row_at, self._is_new = time.monotonic(), True
            for label, curve in self._content.curves.items():
                if (value := curve_value(label, row)) is not None:
                    curve.add(known.get("env_steps", 0.0), value)
        self._wake()

    def close(self) -> None:
        self._closing = True
        self._wake()
        self._thread.join(CLOSE_SECS)
        self._restore_streams()
        self._closed = True
        if not self._thread.is_alive():
            for end in (self._wakes, self._wake_end):
                os.close(end)

    def _take(self, line: str) -> None:
        """Takes in a printed line; another thread shows it, so that a stopped terminal (Ctrl-S) stops nothing."""
        if self._closed:  # the stream is still kept somewhere, such as by a logger
            print(line, file=self._stream, flush=True)
        else:
            self._printed.append(line)
            self._wake()

    def _show_progress(self, text: str) -> None:
        self._doing = printable(text)
        self._row_at = self._row_at if text else time.monotonic()  # the next work begins
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread will wake
            os.write(self._wake_end, b".")

    def _restore_streams(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, Printed):
                stream.end()
        sys.stdout, sys.stderr = self._streams
        while self._printed:
            print(self._printed.popleft(), file=self._stream, flush=True)

    def _run_thread(self) -> None:
        keyboard = Keyboard()
        try:
            while not self._closing:
                self._look(keyboard)
                self._wait(keyboard)
            content = self._content
            content.row = self._row
            content.state, content.shown, content.has_keys = self._state() if content.row else "", OVERVIEW_PAGE, False
            if self._screen.takes_text():
                self._draw()
        except Exception:  # a run goes on without its view
            self._restore_streams()
            traceback.print_exc()
        finally:
            keyboard.close()

    def _wait(self, keyboard: Keyboard) -> None:
        secs = PRINT_SECS if self._printed else TICK_SECS
        for ready in select.select([self._wakes, *keyboard.files], [], [], secs)[0]:
            if ready == self._wakes:
                os.read(self._wakes, 1024)
            else:
                before = self._content.shown
                for key in keyboard.read().lower():
                    self._content.press(key)
                if self._content.shown != before:
                    self._due, self._is_new = 0.0, True

    def _look(self, keyboard: Keyboard) -> None:
        """Draws if there is something new, the terminal takes text, and it is time."""
        self._content.row = self._row  # once: a row that comes meanwhile wakes the thread again
        if self._content.row and keyboard.listen():  # at the start, and after a shell has had the terminal
            self._screen.forget()
            self._is_new = True
        self._content.has_keys = bool(keyboard.files)
        self._content.state = self._state()
        now, is_new = time.monotonic(), self._is_new or self._content.state != self._drawn_state
        at_once = self._screen.is_resized() or (self._printed and now >= self._drawn_at + PRINT_SECS)
        if (at_once or (is_new and now >= self._due)) and self._screen.takes_text():
            self._draw()
        if now >= self._episode_due and (self._episode or self._content.terminal is None):
            self._look_at_episode()

    def _look_at_episode(self) -> None:
        """Takes in what the episode looks like now, and draws what has changed of it."""
        start, content = time.thread_time(), self._content
        newest = self._terminal()
        if newest is not None and newest is not content.terminal:
            if content.terminal is None:
                self._due, self._is_new = 0.0, True
            content.terminal = newest
            if self._episode and not self._screen.is_resized() and self._screen.takes_text():
                before, self._episode_rows = self._episode_rows, self._rows_of_episode()
                rows = zip(self._episode, before, self._episode_rows)
                self._screen.draw_over({index: new for index, old, new in rows if new != old})
        spent = time.thread_time() - start
        self._episode_due = time.monotonic() + max(EPISODE_SECS, spent / EPISODE_FRACTION)

    def _rows_of_episode(self) -> list[str]:
        if not self._episode or self._content.terminal is None:
            return []
        width, has_colors = self._screen.size()[0], self._console.color_system is not None
        return episode_rows(self._content.terminal, width, len(self._episode), has_colors)

    def _state(self) -> str:
        quiet = time.monotonic() - self._row_at
        if self._doing:
            return self._doing
        if not self._content.row:
            return f"compiling, {quiet:.0f} s"
        if quiet > max(QUIET_SECS, 3 * self._run.log_every_sec):
            return f"no update for {quiet:.0f} s"
        return f"update {self._content.row.get('updates', 0):,}"

    def _draw(self) -> None:
        start, content = time.thread_time(), self._content
        width, height = self._screen.size()
        with self._lock:
            printed = [self._printed.popleft() for _ in range(len(self._printed))]
            content.log = [*content.log, *map(printable, printed)][-LINES_KEPT:]
            self._is_new = content.row is not self._row
            if content.row:
                content.row = {**content.row, **self._newest_checkpoint()}
            canvas = Canvas(self._console, width)
            lines, self._episode = page(canvas, max(1, height - 1), content) if content.row else ([], range(0))
            self._drawn_state = content.state
        if lines:
            with self._console.capture() as capture:
                for line in lines:
                    self._console.print(line, soft_wrap=True)
            texts, self._episode_rows = capture.get().split("\n"), self._rows_of_episode()
            for index, row in zip(self._episode, self._episode_rows):
                texts[index] = row + texts[index]
            self._screen.draw(texts[: len(lines)], printed)
        else:
            self._screen.draw_line(content.state[:width], printed)
        self._drawn_at = time.monotonic()
        self._due = self._drawn_at + (time.thread_time() - start) / MAX_FRACTION

    def _newest_checkpoint(self) -> Row:
        """Returns the steps of the newest checkpoint, its age, and whether an earlier start saved it."""
        with contextlib.suppress(OSError, ValueError):  # there is none, or not any more
            newest = max(saved_steps(self._folder))
            written = os.path.getmtime(os.path.join(self._folder, CHECKPOINTS, str(newest)))
            found = {"checkpoint_steps": newest, "checkpoint_secs": max(0.0, time.time() - written)}
            return found | ({"checkpoint_state": "before this start"} if written < self._started_at else {})
        return {}
