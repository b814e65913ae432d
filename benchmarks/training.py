"""A training run, monitored from outside: its rows of metrics, memory and GPU. Without flags."""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psutil

from benchmarks.harness import ROOT_ENV
from benchmarks.reward_files import reward_settings

SMALL_FLAGS = (  # compiles quickly
    "--num_workers 1 --worker_num_splits 1 --num_envs_per_worker 4 --batch_size 128 "
    "--encoder_custom mlp_encoder --hidden_size 32"
)
SMOKE_FLAGS = (  # a run of ten small updates, a row of metrics for each
    f"{SMALL_FLAGS} --max_episode_steps 20 --train_for_env_steps 1280 --log_every_sec 0.01"
)
SAMPLE_SECS = 2.0
FIRST_ROW_SECS = 0.01  # interval of polls for the first row
GPU_QUERY = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
LAUNCH_TRAIN = ("-m", "launch.train")


class Run(NamedTuple):
    """Results of a run, with samples every SAMPLE_SECS."""

    rows: Sequence[Mapping[str, Any]]  # rows of metrics
    summary: Mapping[str, Any]
    first_row_secs: float  # time from the command to the first row of metrics, which comes after an update
    memory_bytes: Sequence[int]  # proportional memory of the program and all its children
    gpu_busy_fractions: Sequence[float]  # the first GPU's; empty without one
    output: str

    def env_steps_per_sec(self) -> float:
        """Returns the rate after the first third of the steps, once all is compiled and the ring is full."""
        last = self.rows[-1]
        first = next(row for row in self.rows if row["env_steps"] >= last["env_steps"] / 3)
        if first is last:
            raise RuntimeError("too few rows of metrics: train for longer, or log more often")
        return (last["env_steps"] - first["env_steps"]) / (last["secs"] - first["secs"])


def train(
    reward_type: str,
    train_flags: Sequence[str],
    secs: float = 1e10,
    variables: Mapping[str, str] | None = None,
    program: Sequence[str] = LAUNCH_TRAIN,
) -> Run:
    """Trains for `secs`, or until `train_flags` end it, in a temporary folder, with the published coefficients.

    Args:
      reward_type: of the run.
      train_flags: more flags.
      secs: of training.
      variables: added to the program's environment.
      program: arguments of Python.
    """
    coefficients = [] if reward_type == "none" else ["--llm_reward_coeff=0.4", "--extrinsic_reward_coeff=0.1"]
    coefficients += [f"--{name}={value}" for name, value in reward_settings(reward_type).items()]
    with tempfile.TemporaryDirectory() as train_dir:
        words = [f"--root_env={ROOT_ENV}", f"--llm_reward_type={reward_type}", *coefficients]
        words += [f"--train_dir={train_dir}", "--experiment=run", f"--train_for_seconds={secs}"]
        words += ["--log_every_sec=2", *train_flags]
        print("launch.train", " ".join(words), flush=True)
        folder, output = pathlib.Path(train_dir) / "run", pathlib.Path(train_dir) / "output"
        with open(output, "w") as file:
            start = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, *program, *words], stdout=file, env={**os.environ, **(variables or {})}
            )
            seen = _watch(process, folder / "metrics.jsonl", start)
        if process.returncode != 0:
            raise RuntimeError(f"launch.train {' '.join(words)} ended with exit code {process.returncode}")
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return Run(rows, json.loads((folder / "summary.json").read_text()), *seen, output.read_text())


def _watch(process: subprocess.Popen, metrics: pathlib.Path, start: float) -> tuple[float, list[int], list[float]]:
    """Samples `first_row_secs, memory_bytes, gpu_busy_fractions` of a Run until the program ends."""
    has_gpu = shutil.which(GPU_QUERY[0]) is not None
    first_row_secs, memory_bytes, gpu_busy_fractions, sample_due = math.nan, [], [], start
    while process.poll() is None:
        if math.isnan(first_row_secs) and metrics.exists() and metrics.stat().st_size:
            first_row_secs = time.monotonic() - start
        if time.monotonic() >= sample_due:
            sample_due = time.monotonic() + SAMPLE_SECS
            memory_bytes.append(memory_of(process.pid))
            if has_gpu:
                answer = subprocess.run(GPU_QUERY, capture_output=True, text=True).stdout.split()
                gpu_busy_fractions += [float(percent) / 100 for percent in answer[:1] if percent.isdigit()]
        try:
            process.wait(FIRST_ROW_SECS if math.isnan(first_row_secs) else SAMPLE_SECS / 10)
        except subprocess.TimeoutExpired:
            continue
    return first_row_secs, memory_bytes, gpu_busy_fractions


def memory_of(pid: int) -> int:
    """Returns the proportional set size of a process and all its children, in bytes: a page of n counts 1/n in each."""
    total = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            total += process.memory_full_info().pss
    except psutil.NoSuchProcess:
        pass  # it is ending
    return total
