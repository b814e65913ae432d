"""Potentials of BK: calls of a code in its sandbox, and training that is shaped by it.

    python -m benchmarks.potentials --json potentials.json

The code is the rule-based judge's, which reads the present and the past. Calls: on windows of random play, one episode
after the other, with the lists that they are made of; each window is called once. Training is `launch.train` with
`bk-code` and, in turn, with `none`; memo hits and the time that the learner waits for calls are those of its last row.
"""

import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from benchmarks.harness import JSON, alternate, measure_rate, num_repeats, ratio, sized, spread, write_report
from benchmarks.training import train
from oni_jax.config import EnvConfig
from oni_jax.potentials.code import read_code
from oni_jax.potentials.samples import random_episodes, windows_of
from oni_jax.potentials.sandbox import Sandbox
from oni_jax.runtime import StopRequest, no_garbage_collection

LEVEL = "BabyAI-Text-GoToLocal-RedBall-S20"
TRAINING = "--encoder_custom mlp_encoder --hidden_size 128 --use_rnn False --log_every_sec 1"
CODE = str(pathlib.Path(__file__).with_name("studies") / "judge_potential")
HORIZON = 5
FULL = "--train_for_env_steps 500000 --batch_size 8192 --rollout 32"
SMALL = "--train_for_env_steps 1280 --batch_size 128 --rollout 32 --log_every_sec 0.01"

_SECS = flags.DEFINE_float("secs", 3.0, "Seconds of a measurement of calls, at least.")


class Calls:
    """A sandbox, and windows to call it on."""

    def __init__(self, num_workers: int):
        env = EnvConfig(root_env=LEVEL, max_episode_steps=sized(400, 12))
        episodes = random_episodes(env, sized(8, 2), 0, StopRequest())
        segments = [own.part(t, HORIZON) for own in episodes for t in range(own.length - HORIZON)]
        self.windows, self._sandbox = windows_of(segments), Sandbox(read_code(CODE)[1], num_workers)
        self.number = len(segments)
        self.run()

    def run(self) -> None:
        with no_garbage_collection():
            self._sandbox.call(self.windows.take(range(self.number)))


def measure_calls(repeats: int) -> dict[str, Any]:
    """Measures calls a second, by the number of workers."""
    counts = sorted({1, len(os.sched_getaffinity(0))})
    sides = {}
    for count in counts:
        calls = Calls(count)
        sides[f"code_calls_per_sec_{count}_workers"] = functools.partial(
            measure_rate, calls.run, calls.number, sized(_SECS.value, 0.0)
        )
    return {name: spread(rates) for name, rates in alternate(sides, repeats).items()}


def measure_training(repeats: int) -> dict[str, Any]:
    """Measures training with the potential and without, in turn."""
    rows: list[Mapping[str, Any]] = []

    def rate(reward_type: str) -> float:
        words = f"--root_env {LEVEL} {TRAINING} {sized(FULL, SMALL)}"
        if reward_type == "bk-code":
            words += f" --reward_dir {CODE}"
        run = train(reward_type, words.split())
        if reward_type == "bk-code":
            rows.append(run.rows[-1])
        return run.env_steps_per_sec()

    rates = alternate({name: functools.partial(rate, name) for name in ("none", "bk-code")}, repeats)
    return {
        "none_training_steps_per_sec": spread(rates["none"]),
        "bk_code_training_steps_per_sec": spread(rates["bk-code"]),
        "bk_code_ratio_to_none": ratio(rates["bk-code"], rates["none"]),
        "memo_fraction": spread([row["reward/potential_memo_fraction"] for row in rows]),
        "learner_looks_up_fraction": spread([row["learner_looks_up_fraction"] for row in rows]),
    }


def main(argv: Sequence[str]) -> None:
    del argv
    write_report(JSON.value, {**measure_calls(num_repeats()), **measure_training(num_repeats())})


if __name__ == "__main__":
    app.run(main)
