"""Watching a recording: where it is, and what the keys do."""

import dataclasses
import time

from oni_jax.runtime import StopRequest
from oni_jax.viewing.keys import action_text
from oni_jax.viewing.screen import COLUMNS, ROWS, Text, ansi_rows, cropped, joined, text_screen
from oni_jax.viewing.shell import Shell
from oni_jax.viewing.ttyrec import Film

SPEEDS = tuple(2.0**i for i in range(-1, 8))  # a second
LONGEST_WAIT_SECS = 0.1  # between looks at whether to stop
HELP = "space pause, . forward, , back, + - speed, 0 $ first and last, q quit"


@dataclasses.dataclass(frozen=True)
class Pace:
    """How fast something goes on by itself."""

    per_sec: float
    paused: bool = False
    quit: bool = False

    def pressed(self, key: int) -> "Pace":
        """After a key."""
        match chr(key):
            case " ":
                return dataclasses.replace(self, paused=not self.paused)
            case "+" | "=":  # the same key on many keyboards
                faster = min((speed for speed in SPEEDS if speed > self.per_sec), default=self.per_sec)
                return dataclasses.replace(self, per_sec=faster)
            case "-":
                slower = max((speed for speed in SPEEDS if speed < self.per_sec), default=self.per_sec)
                return dataclasses.replace(self, per_sec=slower)
            case "q":
                return dataclasses.replace(self, quit=True)
        return self


@dataclasses.dataclass(frozen=True)
class Playback:
    """What is shown, of `num_frames`."""

    num_frames: int
    pace: Pace
    index: int = 0

    def pressed(self, key: int) -> "Playback":
        """After a key."""
        steps = {".": self.index + 1, ",": self.index - 1, "0": 0, "$": self.num_frames - 1}
        if chr(key) in steps:
            pace = dataclasses.replace(self.pace, paused=True)
            return dataclasses.replace(self, index=self._within(steps[chr(key)]), pace=pace)
        return dataclasses.replace(self, pace=self.pace.pressed(key))

    def advanced(self) -> "Playback":
        """After a frame's time."""
        return dataclasses.replace(self, index=self._within(self.index + (not self.pace.paused)))

    @property
    def at_end(self) -> bool:
        return self.index == self.num_frames - 1

    def _within(self, index: int) -> int:
        return min(max(0, index), self.num_frames - 1)


def watch(film: Film, frames_per_sec: float, shell: Shell, stop: StopRequest) -> None:
    """Shows a recording until the watcher quits, or `stop`."""
    playback = Playback(len(film), Pace(frames_per_sec))
    due = time.monotonic() + 1 / frames_per_sec
    shown: object = None
    while not playback.pace.quit and not stop:
        state = (playback, shell.size())
        if state != shown:
            shell.draw(view(film, playback, *shell.size()))
            shown = state
        for key in shell.keys(min(LONGEST_WAIT_SECS, max(0.0, due - time.monotonic()))):
            playback = playback.pressed(key)
        if time.monotonic() >= due:
            playback = playback.advanced()
            due = time.monotonic() + 1 / playback.pace.per_sec


def view(film: Film, playback: Playback, rows: int, columns: int) -> list[str]:
    """The rows of a terminal of this size: the recording's screen, and what there is to say where there is room."""
    screen = film.screen(playback.index)
    if rows > ROWS:
        lines = [Text(_place(film, playback)), Text(HELP)][: rows - ROWS]
        screen = joined([screen, text_screen(lines, len(lines), COLUMNS)], below=True)
    return ansi_rows(cropped(screen, rows, columns))


def _place(film: Film, playback: Playback) -> str:
    pace, key = playback.pace, film.key(playback.index)
    state = "end" if playback.at_end else "paused" if pace.paused else f"{pace.per_sec:g} a second"
    pressed = "" if key is None else f"; then {action_text(key)}"
    return f"screen {playback.index + 1:,} of {playback.num_frames:,}, {state}{pressed}"
