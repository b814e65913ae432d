"""Whole training runs as a user starts them: `python -m launch.train`, watched from outside."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psutil

ROOT_ENV = "NetHackScoreExtendedActions-v1"
WITHOUT_LABELS = ("--llm_reward_type=none", "--llm_reward_coeff=0")
SMALL_NETWORK = ("--encoder_custom=mlp_encoder", "--hidden_size=32")
SMALL_ACTING = ("--num_workers=1", "--worker_num_splits=1", "--num_envs_per_worker=4")
SMALL = (*SMALL_NETWORK, *SMALL_ACTING, "--batch_size=128")  # for --smoke
LAUNCH_TRAIN = ("-m", "launch.train")

WATCH_EVERY_SECS = 0.01  # for the first row of metrics
MEMORY_EVERY_SECS = 1.0


class Run(NamedTuple):
    """What was seen of a training run."""

    first_row_secs: float  # from the command to the first row of metrics
    peak_bytes: int  # proportional memory of the program and all its children
    rows: Sequence[Mapping[str, Any]]  # of metrics
    output: str

    def env_steps_per_sec(self) -> float:
        """After the first third of the steps: compiling is over, and the ring has filled."""
        last = self.rows[-1]
        first = next(row for row in self.rows if row["env_steps"] >= last["env_steps"] / 3)
        return (last["env_steps"] - first["env_steps"]) / (last["secs"] - first["secs"])


def train(
    flags: Sequence[str], variables: Mapping[str, str] | None = None, program: Sequence[str] = LAUNCH_TRAIN
) -> Run:
    """Runs a training in a folder of its own until it ends by itself.

    Args:
      flags: its command line, without the task and the folder.
      variables: of its environment, besides ours.
      program: what Python runs.
    Raises RuntimeError when it fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        metrics, output = folder / "run" / "metrics.jsonl", folder / "output"
        words = [
            sys.executable,
            *program,
            f"--root_env={ROOT_ENV}",
            *flags,
            f"--train_dir={folder}",
            "--experiment=run",
        ]
        with open(output, "w") as file:
            start = time.monotonic()
            process = subprocess.Popen(words, stdout=file, env={**os.environ, **(variables or {})})
            first_row_secs, peak_bytes = _watch(process, metrics, start)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(words)} ended with exit code {process.returncode}")
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        return Run(first_row_secs, peak_bytes, rows, output.read_text())


def _watch(process: subprocess.Popen, metrics: pathlib.Path, start: float) -> tuple[float, int]:
    """(seconds to the first row of metrics, most memory) until the program ends."""
    first_row_secs, peak_bytes, looked_at = float("nan"), 0, start
    while process.poll() is None:
        now = time.monotonic()
        if first_row_secs != first_row_secs and metrics.exists() and metrics.stat().st_size:
            first_row_secs = now - start
        if now - looked_at > MEMORY_EVERY_SECS:
            looked_at = now
            peak_bytes = max(peak_bytes, memory_of(process.pid))
        time.sleep(WATCH_EVERY_SECS)
    return first_row_secs, peak_bytes


def memory_of(pid: int) -> int:
    """Proportional memory of a process and all its children, in bytes: pages shared by n count for 1/n each."""
    total = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            total += process.memory_full_info().pss
    except psutil.NoSuchProcess:
        pass  # it is ending
    return total
