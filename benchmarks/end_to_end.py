"""Whole training runs: environment steps a second, and the memory of all processes, for each reward type in turn.

    python -m benchmarks.end_to_end --secs 300 --repeats 2 --json end_to_end.json

Every run is a `python -m launch.train` of its own, in a fresh folder. The first `--warm_up_secs` of training are left
out. Runs of the reward types alternate, so that a drift of the machine's speed meets all alike.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import psutil
from absl import app, flags

from benchmarks.harness import JSON, REPEATS, spread, write_report

_SECS = flags.DEFINE_float("secs", 300.0, "Seconds of training in a run, warm-up included.")
_WARM_UP_SECS = flags.DEFINE_float("warm_up_secs", 60.0, "Seconds of training left out at the start of a run.")
_REWARD_TYPES = flags.DEFINE_list("reward_types", ["none", "online_cls"], "Reward types, run in turn.")
_FLAGS = flags.DEFINE_string(
    "train_flags",
    "--num_workers 2 --num_envs_per_worker 20 --batch_size 4096",
    "Flags of every run.",
)

MEMORY_EVERY_SECS = 5.0


def run_once(reward_type: str) -> dict[str, Any]:
    """One run: its rates, waits and memory."""
    coefficients = [] if reward_type == "none" else ["--llm_reward_coeff=0.4", "--extrinsic_reward_coeff=0.1"]
    with tempfile.TemporaryDirectory() as train_dir:
        command = [sys.executable, "-m", "launch.train", "--root_env=NetHackScoreExtendedActions-v1"]
        command += [f"--llm_reward_type={reward_type}", *coefficients, *_FLAGS.value.split()]
        command += [f"--train_dir={train_dir}", "--experiment=run", f"--train_for_seconds={_SECS.value}"]
        program = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        memory = _watch_memory(program)
        if program.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with exit code {program.returncode}")
        folder = pathlib.Path(train_dir) / "run"
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        summary = json.loads((folder / "summary.json").read_text())
    measured = [row for row in rows if row["secs"] >= _WARM_UP_SECS.value]
    first, last = measured[0], measured[-1]
    waits = [name for name in last if name.endswith(("_waits_share", "_wait_share", "_paused_share"))]
    return {
        "env_steps_per_sec": (last["env_steps"] - first["env_steps"]) / (last["secs"] - first["secs"]),
        "memory_bytes": memory,
        "waits": {name: statistics.mean(row[name] for row in measured) for name in waits},
        "summary": summary,
    }


def _watch_memory(program: subprocess.Popen) -> list[tuple[float, int]]:
    """(seconds since the start, proportional memory of the program and all its children) until it ends."""
    start, samples = time.monotonic(), []
    root = psutil.Process(program.pid)
    while program.poll() is None:
        try:
            processes = [root, *root.children(recursive=True)]
            samples.append((time.monotonic() - start, sum(process.memory_full_info().pss for process in processes)))
        except psutil.NoSuchProcess:
            pass  # it is ending
        try:
            program.wait(MEMORY_EVERY_SECS)
        except subprocess.TimeoutExpired:
            continue
    return samples


def main(argv: Sequence[str]) -> None:
    del argv
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in _REWARD_TYPES.value}
    for _ in range(REPEATS.value or 1):
        for name in runs:
            runs[name].append(run_once(name))
            print(name, f"{runs[name][-1]['env_steps_per_sec']:.0f} env steps/s", flush=True)
    figures: dict[str, Any] = {
        name: {
            "env_steps_per_sec": spread([run["env_steps_per_sec"] for run in own]),
            "peak_memory_bytes": max(sample for run in own for _, sample in run["memory_bytes"]),
            "runs": own,
        }
        for name, own in runs.items()
    }
    if "none" in runs:
        for name in runs:
            pairs = zip(runs[name], runs["none"], strict=True)
            ratios = [run["env_steps_per_sec"] / none["env_steps_per_sec"] for run, none in pairs]
            figures[name]["ratio_to_none"] = spread(ratios)
    write_report(JSON.value, figures)


if __name__ == "__main__":
    app.run(main)
