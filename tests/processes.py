"""Running the programs as a user does, and looking at what they leave behind."""

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

SMALL = (  # a run of NetHack that two cores finish in seconds
    "--root_env=NetHackScoreExtendedActions-v1 --num_workers=2 --num_envs_per_worker=4 --batch_size=256 "
    "--hidden_size=32 --log_every_sec=1"
).split()
RETRIEVAL = "--llm_reward_type=online_cls --llm_reward_coeff=0.4 --extrinsic_reward_coeff=0.1".split()


class Launched:
    """A program started with a marker in its environment, by which all its descendants are found."""

    def __init__(self, module: str, *words: str):
        self.marker = f"ONI_JAX_TEST={os.getpid()}-{time.monotonic_ns()}"
        name, value = self.marker.split("=")
        self._directory = tempfile.TemporaryDirectory(prefix="oni_jax_test_")
        self.temporary = self._directory.name
        environment = {**os.environ, name: value, "TMPDIR": self.temporary, "JAX_PLATFORMS": "cpu"}
        self.shared_memory_before = set(os.listdir("/dev/shm"))
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", module, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )

    def finish(self, timeout_secs: float = 240.0) -> str:
        """Waits for its end; its output."""
        output, _ = self.process.communicate(timeout=timeout_secs)
        return output

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
        """Processes with the marker, alive, but for the program itself."""
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

    def leftovers(self, patience_secs: float = 10.0) -> list[object]:
        """What is still there a while after the end: processes, shared memory, temporary files."""
        deadline = time.monotonic() + patience_secs
        while True:
            left = [
                *self.descendants(),
                *(set(os.listdir("/dev/shm")) - self.shared_memory_before),
                *os.listdir(self.temporary),
            ]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.2)


def rows(folder: pathlib.Path) -> list[dict]:
    """The rows of metrics written so far."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def summary(folder: pathlib.Path) -> dict:
    return json.loads((folder / "summary.json").read_text())
