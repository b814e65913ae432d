"""launch.sweep with a stand-in for launch.train, which counts steps, fails with seed 13 and is deaf with seed 14."""

import json
import os
import pathlib
import signal
import sys
import time

from launch import flags, sweep
from launch.sweeps import children
from oni_jax.host.run_files import saved_secs, saved_steps
from oni_jax.runs.plan import with_choices
from oni_jax.settings.config import config_to_json

MODULE = "tests.launch.stand_in_sweep"
STEPS_OF_ROW, SECS_OF_ROW = 100, 10  # the stand-in's clock


def use_stand_in() -> None:
    children.CHILD = ("-m", MODULE, "train")


def train(words: list[str]) -> int:
    config = flags.parse(words)
    asked: list[int] = []
    signal.signal(signal.SIGINT, lambda *_: asked.append(1) if config.run.seed != 14 else None)
    if config.run.seed == 13:
        print("error: thirteen is bad luck")
        return 1
    folder = pathlib.Path(config.run.train_dir, config.run.experiment)
    (folder / "config.json").write_text(config_to_json(with_choices(config)))
    steps, secs_before = max(saved_steps(str(folder)), default=0), saved_secs(str(folder))
    print(f"from {steps}, process {os.getpid()}", flush=True)
    if gpu := os.environ.get("CUDA_VISIBLE_DEVICES"):
        print(f"GPU {gpu}", flush=True)
    secs = 0
    while steps < config.run.train_for_env_steps and secs < config.run.train_for_seconds and not asked:
        time.sleep(0.02)
        steps += STEPS_OF_ROW
        secs += SECS_OF_ROW
        row = {"env_steps": steps, "secs": secs, "mean_return": config.run.seed + config.learner.gamma}
        row["episode/kills"] = config.run.seed
        row |= {"episode/success": 0.5} if config.env.root_env.startswith("BabyAI") else {}
        with open(folder / "metrics.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")
    end(folder, steps, secs_before + secs)
    return 0


def end(folder: pathlib.Path, steps: int, secs: float) -> None:
    """Writes what a run that ends leaves: a checkpoint, as far as it is read here, and the summary."""
    progress = folder / "checkpoints" / str(steps) / "progress"
    progress.mkdir(parents=True)
    (progress / "metadata").write_text(json.dumps({"train_secs": secs}))
    done = {"env_steps": steps, "env_steps_per_sec": 5000.0, "train_secs": secs, "commit": "of-the-run"}
    (folder / "summary.json").write_text(json.dumps(done))


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        sys.exit(train(sys.argv[2:]))
    use_stand_in()
    sys.exit(sweep.main())
