"""Runs of a sweep as child processes, some at a time, with a line for each change."""

import contextlib
import datetime
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from launch.sweeps import SWEEP
from launch.sweeps.grid import GridRun
from launch.sweeps.state import LOG, fraction_saved, is_finished, last_line
from oni_jax.host.files import open_to_append
from oni_jax.host.run_files import fraction_done, last_row, saved_secs, summary
from oni_jax.host.runtime import LEAVE_SECS, Every, StopRequest

CHILD: tuple[str, ...] = ("-m", "launch.sweeps.child")
POLL_SECS = 0.2
STATUS_SECS = 300.0
_LINE_CHARACTERS = 200


class Child(NamedTuple):
    run: GridRun
    process: subprocess.Popen
    secs_before: float  # training time before this start
    row_before: Mapping[str, Any]  # newest row of metrics before this start
    gpu: str | None = None  # the only GPU that it sees


def train_all(
    runs: Sequence[GridRun], num_jobs: int, stop: StopRequest, variables: Mapping[str, str], gpus: Sequence[str] = ()
) -> int:
    """Trains the runs that are not finished, `num_jobs` at a time. Returns how many failed.

    After a stop request no run is started, and those that go on save and end.

    Args:
        runs: runs of the sweep.
        num_jobs: number of runs at a time.
        stop: asks for the end; a second SIGINT kills the runs after at most LEAVE_SECS.
        variables: environment of the runs.
        gpus: over which the runs are spread, as CUDA_VISIBLE_DEVICES names them; each run sees one.
    """
    waiting = deque(run for run in runs if not is_finished(run))
    progress = _Progress(runs, len(runs) - len(waiting))
    running: list[Child] = []
    stop.awaits("")
    status_due, asked, num_failed = Every(STATUS_SECS), False, 0
    try:
        while running or (waiting and not stop.reason):
            if stop.reason and not asked:
                asked = True
                progress.say((), f"{stop.reason}: {_leaving(running)}")
                _interrupt(running)
            while waiting and len(running) < num_jobs and not stop.reason:
                run = waiting.popleft()
                try:
                    running.append(_start(run, variables, _least_used(gpus, running)))
                except OSError as error:
                    num_failed += 1
                    progress.say(running, f"{run.name} FAILED: can't be started in {run.folder} ({error.strerror})")
                    continue
                where = f" on GPU {running[-1].gpu}" if gpus else ""
                progress.say(running, f"{run.name} starts{where}; output: {_log(run)}")
            for child in [child for child in running if child.process.poll() is not None]:
                running.remove(child)
                num_failed += progress.ended(child, running, asked)
            if status_due():
                progress.say(running, ", ".join(f"{child.run.name} {_fraction(child):.0%}" for child in running))
            time.sleep(POLL_SECS)
    finally:
        _leave(running)
    return num_failed


def _least_used(gpus: Sequence[str], running: Sequence[Child]) -> str | None:
    """Returns the GPU on which the fewest runs go on, the first of several; None without any."""
    return min(gpus, key=[child.gpu for child in running].count, default=None)


def _start(run: GridRun, variables: Mapping[str, str], gpu: str | None) -> Child:
    """Starts a run. Raises OSError."""
    secs_before = saved_secs(run.folder)
    left = max(1.0, run.config.run.train_for_seconds - secs_before)
    words = [*run.words, *([f"--train_for_seconds={left}"] if secs_before else [])]
    row_before = last_row(run.folder)
    if not os.path.isdir(run.folder):
        os.mkdir(run.folder)  # not the sweep's folder too, which may have been removed
    with open_to_append(_log(run)) as log:
        process = subprocess.Popen(
            [sys.executable, *CHILD, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**variables, SWEEP: str(os.getpid()), **({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})},
            process_group=0,  # a terminal's Ctrl-C comes to the sweep alone, which hands it on once
        )
    return Child(run, process, secs_before, row_before, gpu)


def _log(run: GridRun) -> str:
    return os.path.join(run.folder, LOG)


def _fraction(child: Child) -> float:
    row = last_row(child.run.folder)
    secs = 0.0 if row == child.row_before else row.get("secs", 0.0)  # a row's are those since its start
    return fraction_done(child.run.config.run, row.get("env_steps", 0), child.secs_before + secs)


def _interrupt(running: Sequence[Child]) -> None:
    for child in running:
        with contextlib.suppress(ProcessLookupError):
            child.process.send_signal(signal.SIGINT)


def _leaving(running: Sequence[Child]) -> str:
    """Returns what a sweep that ends waits for."""
    ends = "1 run saves and ends" if len(running) == 1 else f"{len(running)} runs save and end"
    names = ", ".join(child.run.name for child in running)
    return f"{ends} after the update that is computed, or compiled; Ctrl-C again ends at once; waiting for {names}"


def _leave(running: Sequence[Child]) -> None:
    """Interrupts what still runs, a second time after a stop request, and kills it when it does not end."""
    _interrupt(running)
    deadline = time.monotonic() + 0.8 * LEAVE_SECS  # this process has LEAVE_SECS
    for child in running:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(child.process.pid, signal.SIGKILL)
            child.process.wait()


class _Progress:
    """Lines about the sweep: time, runs done, what has happened, and the time that is left."""

    def __init__(self, runs: Sequence[GridRun], num_done: int):
        self._runs, self._num_done = runs, num_done
        self._started = time.monotonic()
        self._work_before = self._work(())
        if num_done:
            self.say((), f"finished already: {num_done}")

    def say(self, running: Sequence[Child], text: str) -> None:
        clock = datetime.datetime.now().strftime("%H:%M:%S")
        left = self._left(running)
        print(f"{clock} [{self._num_done} of {len(self._runs)} done{left}] {text}", flush=True)

    def ended(self, child: Child, running: Sequence[Child], asked: bool) -> bool:
        """Prints how a run ended. Returns whether it failed. `asked`: whether it was to end early."""
        run, code, found = child.run, child.process.returncode, summary(child.run.folder)
        if finished := code == 0 and is_finished(run):
            self._num_done += 1
            steps, rate = found.get("env_steps", 0), found.get("env_steps_per_sec", 0.0)
            text = f"{run.name} is done: {steps:,} steps, {rate:,.0f} steps/s"
            value = found.get("mean_return")
            text += "" if value is None else f", return {value:.4g}"
        elif asked:
            text = f"{run.name} stopped at {found.get('env_steps', 0):,} steps"
        else:
            try:
                line = last_line(_log(run))[:_LINE_CHARACTERS]
            except FileNotFoundError:
                line = "its output was removed"
            except OSError as error:
                line = f"its output can't be read ({error.strerror})"
            text = f"{run.name} FAILED with exit code {code}: {line}; output: {_log(run)}"
        self.say(() if asked else running, text)  # no time is left then
        return not (finished or asked)

    def _work(self, running: Sequence[Child]) -> float:
        """Returns the work done, in runs."""
        fractions = {child.run.name: _fraction(child) for child in running}
        return sum(fractions[run.name] if run.name in fractions else fraction_saved(run) for run in self._runs)

    def _left(self, running: Sequence[Child]) -> str:
        done, elapsed = self._work(running), time.monotonic() - self._started
        if done <= self._work_before or not running:
            return ""
        secs = (len(self._runs) - done) * elapsed / (done - self._work_before)
        return f", ETA {datetime.timedelta(seconds=round(secs))}"
