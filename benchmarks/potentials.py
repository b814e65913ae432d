"""Potentials of BK: calls of a code in its sandbox, and training that is shaped by each kind of potential.

    python -m benchmarks.potentials --json potentials.json

Code, preferences and goals are the rule-based judge's. Calls of the code: on windows of random play, one episode after
the other, with the lists that they are made of; each window is called once. Training is `launch.train` with each kind
and, in turn, with `none`; memo hits and the time that the learner waits for rewards are those of its last row. The
Preference Transformer reads observations by an `mlp_encoder` here; goals are compared by counts of words.
"""

import functools
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

from absl import flags

from benchmarks.harness import JSON, alternate, measure_rate, num_repeats, ratio, run_app, sized, spread, write_report
from benchmarks.training import train
from launch import annotate_segments, collect_segments, train_potential, write_goals
from oni_jax.host.memory import no_garbage_collection
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.play import random_episodes, windows_of
from oni_jax.rewards.bk.code import read_code
from oni_jax.rewards.bk.sandbox import Sandbox
from oni_jax.settings.worlds import EnvConfig

LEVEL = "BabyAI-Text-GoToLocal-RedBall-S20"
TRAINING = "--encoder_custom mlp_encoder --hidden_size 128 --use_rnn False --log_every_sec 1"
CODE = str(pathlib.Path(__file__).with_name("studies") / "judge_potential")
HORIZON = 5
FULL = "--train_for_env_steps 500000 --batch_size 8192 --rollout 32"
SMALL = "--train_for_env_steps 1280 --batch_size 128 --rollout 32 --log_every_sec 0.01"

_SECS = flags.DEFINE_float("secs", 3.0, "Seconds of a measurement of calls, at least.")


class Calls:
    def __init__(self, num_workers: int):
        env = EnvConfig(root_env=LEVEL, max_episode_steps=sized(400, 12))
        episodes = random_episodes(env, sized(8, 2), 0, StopRequest())
        segments = [episode.part(t, HORIZON) for episode in episodes for t in range(episode.length - HORIZON)]
        self.windows, self._sandbox = windows_of(segments), Sandbox(read_code(CODE)[1], num_workers)
        self.number = len(segments)
        self.run()

    def run(self) -> None:
        with no_garbage_collection():
            self._sandbox.call(self.windows)


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


def make_potentials(folder: str) -> Mapping[str, str]:
    """Makes potentials in a folder. Returns the flags of launch.train for each type."""
    world, segments = "--root_env BabyAI-Text-GoToLocal-Pretraining-S20", f"{folder}/segments"
    episodes, pairs, rounds = sized(50, 2), sized(1000, 20), sized(500, 5)
    steps = sized("", "--max_episode_steps 20")
    small = "--encoder_custom mlp_encoder --hidden_size 128 --width 64 --num_epochs 1"
    for program, words in (
        (collect_segments, f"--policy random --episodes {episodes} --directory {segments} {steps}"),
        (annotate_segments, f"--segments {segments} --reward_dir {folder}/pref --num_pairs {pairs}"),
        (train_potential, f"--reward_dir {folder}/pref {small}"),
        (write_goals, f"--segments {segments} --reward_dir {folder}/goals --num_rounds {rounds}"),
    ):
        if program.main([*world.split(), *words.split()]):
            raise RuntimeError(f"{program.__name__} {words} failed")
    return {
        "none": "",
        "bk-code": f"--reward_dir {CODE}",
        "bk-pref": f"--reward_dir {folder}/pref",
        "bk-goal": f"--reward_dir {folder}/goals --potential_embeddings grams --potential_goal_threshold 0.8",
    }


def measure_training(repeats: int) -> dict[str, Any]:
    """Measures training with each kind of potential and without, in turn."""
    rows: dict[str, list[Mapping[str, Any]]] = {}

    def rate(reward_type: str, words: str) -> float:
        run = train(reward_type, f"--root_env {LEVEL} {TRAINING} {sized(FULL, SMALL)} {words}".split())
        rows.setdefault(reward_type, []).append(run.rows[-1])
        return run.env_steps_per_sec()

    with tempfile.TemporaryDirectory() as folder:
        added_flags = make_potentials(folder)
        sides = {name: functools.partial(rate, name, words) for name, words in added_flags.items()}
        rates = alternate(sides, repeats)
    found: dict[str, Any] = {f"{name}_training_steps_per_sec": spread(speeds) for name, speeds in rates.items()}
    for name in [kind for kind in rates if kind != "none"]:
        found[f"{name}_ratio_to_none"] = ratio(rates[name], rates["none"])
        for metric in ("reward/potential_memo_fraction", "learner_looks_up_fraction"):
            if metric in rows[name][-1]:
                found[f"{name}_{metric.removeprefix('reward/')}"] = spread([row[metric] for row in rows[name]])
        if "reward/potential_calls" in rows[name][-1]:
            calls = [row["reward/potential_calls"] / row["secs"] for row in rows[name]]
            found[f"{name}_calls_per_sec"] = spread(calls)
    return found


def main() -> None:
    write_report(JSON.value, {**measure_calls(num_repeats()), **measure_training(num_repeats())})


if __name__ == "__main__":
    run_app(main)
