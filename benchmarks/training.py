"""A whole training run, watched from outside: its rows of metrics, its memory, its GPU. Without flags."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psutil

from benchmarks.samples import ROOT_ENV

SMOKE_FLAGS = (  # a run of ten small updates, a row of metrics for each
    "--num_workers 1 --num_envs_per_worker 4 --batch_size 128 --hidden_size 32 --max_episode_steps 20 "
    "--train_for_env_steps 1280 --log_every_sec 0.01"
)
SAMPLE_SECS = 2.0
GPU_QUERY = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]


class Run(NamedTuple):
    """What was seen of a run; samples come every SAMPLE_SECS."""

    rows: Sequence[Mapping[str, Any]]  # of metrics
    summary: Mapping[str, Any]
    memory_bytes: Sequence[int]  # proportional memory of the program and all its children
    gpu_busy_shares: Sequence[float]  # of the first GPU; empty without one


def train(reward_type: str, train_flags: Sequence[str], secs: float) -> Run:
    """Trains for `secs`, or until `train_flags` end it, in a folder that is gone afterwards.

    The coefficients are those of the published runs.
    """
    coefficients = [] if reward_type == "none" else ["--llm_reward_coeff=0.4", "--extrinsic_reward_coeff=0.1"]
    with tempfile.TemporaryDirectory() as train_dir:
        command = [sys.executable, "-m", "launch.train", f"--root_env={ROOT_ENV}", f"--llm_reward_type={reward_type}"]
        command += [*coefficients, f"--train_dir={train_dir}", "--experiment=run", f"--train_for_seconds={secs}"]
        command += ["--log_every_sec=2", *train_flags]
        print(" ".join(command), flush=True)
        program = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        memory_bytes, gpu_busy_shares = _watch(program)
        if program.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with exit code {program.returncode}")
        folder = pathlib.Path(train_dir) / "run"
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return Run(rows, json.loads((folder / "summary.json").read_text()), memory_bytes, gpu_busy_shares)


def _watch(program: subprocess.Popen) -> tuple[list[int], list[float]]:
    """Samples memory and GPU until the program ends."""
    root, has_gpu = psutil.Process(program.pid), shutil.which(GPU_QUERY[0]) is not None
    memory_bytes, gpu_busy_shares = [], []
    while program.poll() is None:
        try:
            processes = [root, *root.children(recursive=True)]
            memory_bytes.append(sum(process.memory_full_info().pss for process in processes))
        except psutil.NoSuchProcess:
            pass  # it is ending
        if has_gpu:
            answer = subprocess.run(GPU_QUERY, capture_output=True, text=True).stdout.split()
            gpu_busy_shares += [float(percent) / 100 for percent in answer[:1] if percent.isdigit()]
        try:
            program.wait(SAMPLE_SECS)
        except subprocess.TimeoutExpired:
            continue
    return memory_bytes, gpu_busy_shares
