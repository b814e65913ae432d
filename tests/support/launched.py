"""A program started as a user starts it, and the leftovers of a killed one."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import psutil

ROW_BYTES = 1 << 14  # upper bound of a row of metrics

_started: list[subprocess.Popen] = []


def kill_the_rest() -> None:
    """Kills all programs that were started here and still run, as after a failed test."""
    while _started:
        process = _started.pop()
        process.kill()  # no-op, if it has ended
        process.wait()


class Launched:
    """A program with a marker in its environment, by which all its descendants are found.

    Its temporary files go to the folder `temporary`, or to a new one.
    """

    def __init__(self, module: str, *words: str, temporary: str | None = None):
        self.marker = f"ONI_JAX_LAUNCHED={os.getpid()}-{time.monotonic_ns()}"
        name, value = self.marker.split("=")
        self._directory = tempfile.TemporaryDirectory(prefix="launched_")
        self.temporary = temporary or self._directory.name
        environment = {**os.environ, name: value, "TMPDIR": self.temporary, "JAX_PLATFORMS": "cpu"}
        self.shared_memory_before = set(os.listdir("/dev/shm"))
        # A file, since a pipe would fill up; in append mode, so that it can be read meanwhile.
        self._output = tempfile.TemporaryFile("a+")
        command = [sys.executable, "-u", "-m", module, *words]
        self.process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT, env=environment)
        _started.append(self.process)

    def finish(self, timeout_secs: float = 240.0) -> str:
        """Waits for the program's end. Returns its output."""
        self.process.wait(timeout_secs)
        return self.output()

    def output(self) -> str:
        self._output.seek(0)
        return self._output.read()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def wait_for(self, condition: Callable[[], object], timeout_secs: float = 180.0) -> None:
        deadline = time.monotonic() + timeout_secs
        while not condition():
            assert self.process.poll() is None, f"ended early:\n{self.finish()}"
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.1)

    def descendants(self) -> list[psutil.Process]:
        """Returns the living processes with the marker, except the program itself."""
        name, value = self.marker.split("=")
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get(name) == value
                if marked and process.pid != self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def leftovers(self, patience_secs: float = 10.0, but_files: bool = False) -> list[object]:
        """Returns processes, shared memory and temporary files (unless `but_files`) that stay after the end."""
        deadline = time.monotonic() + patience_secs
        while True:
            left: list[object] = [
                *self.descendants(),
                *(set(os.listdir("/dev/shm")) - self.shared_memory_before),
                *([] if but_files else os.listdir(self.temporary)),
            ]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.2)


def last_row(folder: pathlib.Path) -> dict:
    """Reads the newest row of metrics, without the others; {} before there is one."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return {}
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - ROW_BYTES))
        whole = file.read().split(b"\n")[:-1]
    return json.loads(whole[-1]) if whole and whole[-1].startswith(b"{") else {}


def rows(folder: pathlib.Path) -> list[dict]:
    """Reads the rows of metrics that a run has written so far."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]
