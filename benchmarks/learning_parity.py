"""Sample efficiency against the published system: return and entropy over steps, and the effect of each difference.

    python -m benchmarks.learning_parity --json benchmarks/learning_parity.json

Runs of reward type `none` with the flags of the recorded runs (`published_curves.json`): the defaults with --seeds
seeds, and each difference from them with --seeds_each. The file is written after every run, and an interrupted study
resumes from it; on another commit or machine all runs are added, beside those that are there. Figures are means over
the points within HALF_WINDOW steps of a mark, then over seeds, with the standard error of that mean.
"""

import itertools
import json
import math
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags

from benchmarks.harness import JSON, MACHINE, ROOT_ENV, environment, run_app, sized
from benchmarks.training import LAUNCH_TRAIN, SMOKE_FLAGS, train

PUBLISHED_FILE = pathlib.Path(__file__).with_name("published_curves.json")
FLAGS = "--num_workers 2 --num_envs_per_worker 20 --batch_size 1024 --save_every_sec 0 --log_every_sec 1"
MARKS = (100_000, 200_000, 300_000, 500_000)
HALF_WINDOW = 10_000
CURVE_STEPS = 10_000  # distance of a curve's stored points


class Side(NamedTuple):
    """Training that differs from the defaults in one thing."""

    flags: str = ""
    change: str = ""  # name in `changed_training`


SIDES: Mapping[str, Side] = {
    "defaults": Side(),
    "orthogonal image encoder": Side(change="orthogonal_image_encoder"),
    "--obs_scale 255": Side("--obs_scale 255"),
    "--num_batches_to_accumulate 2": Side("--num_batches_to_accumulate 2"),
    "--num_batches_to_accumulate 4": Side("--num_batches_to_accumulate 4"),
    "--bootstrap published": Side("--bootstrap published"),
    "truncation is an end": Side(change="truncation_is_an_end"),
    "--precision bfloat16": Side("--precision bfloat16"),
    "published drawing": Side(change="published_drawing"),
}
NAMES = {"return": "mean_return", "entropy": "loss/entropy", "policy_lag": "policy_lag_mean", "length": "mean_length"}

_STEPS = flags.DEFINE_integer("steps", None, "Environment steps of a run. (default: 510000; few with --smoke)", 1)
_SEEDS = flags.DEFINE_integer("seeds", 6, "Runs of the defaults.", 1)
_SEEDS_EACH = flags.DEFINE_integer("seeds_each", 2, "Runs of each difference.", 0)
_SIDES = flags.DEFINE_multi_enum("side", list(SIDES), list(SIDES), "Differences to run; may be given several times.")

Curve = Sequence[Sequence[float]]  # (steps, value)


class Estimate(NamedTuple):
    """A mean over seeds."""

    mean: float
    error: float  # standard error; NaN for one seed
    num_seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if math.isnan(self.error) else f" ± {self.error:.2f}")


def at_mark(curve: Curve, mark: int) -> float | None:
    """Returns the mean of a curve around `mark` steps; None when it does not reach them."""
    values = [value for steps, value in curve if abs(steps - mark) <= HALF_WINDOW]
    reached = bool(curve) and curve[-1][0] >= mark
    return statistics.mean(values) if values and reached else None


def estimate(curves: Sequence[Curve], mark: int) -> Estimate | None:
    """Averages curves over seeds at a mark; None when none of them reaches it."""
    values = [value for curve in curves if (value := at_mark(curve, mark)) is not None]
    if not values:
        return None
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Estimate(statistics.mean(values), error, len(values))


def curves_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Makes curves with a point for every CURVE_STEPS, the mean of the rows since the last one."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for name, metric in NAMES.items():
        points: dict[int, list[float]] = {}
        for row in rows:
            if row.get(metric) is not None:
                points.setdefault(-(-row["env_steps"] // CURVE_STEPS) * CURVE_STEPS, []).append(row[metric])
        curves[name] = [(steps, round(statistics.mean(values), 4)) for steps, values in points.items()]
    return curves


def run_once(name: str, seed: int) -> dict[str, Any]:
    """Runs a training. Returns its curves, its speed, and the entropy of its first update."""
    side = SIDES[name]
    program = ("-m", "benchmarks.changed_training", side.change) if side.change else LAUNCH_TRAIN
    steps = _STEPS.value or sized(510_000, 1280)
    words = [
        *sized(FLAGS, SMOKE_FLAGS).split(),
        f"--train_for_env_steps={steps}",
        f"--seed={seed}",
        *side.flags.split(),
    ]
    run = train("none", words, program=program)
    return {
        "side": name,
        "seed": seed,
        "curves": curves_of(run.rows),
        "first_entropy": run.rows[0]["loss/entropy"],
        "policy_lag_mean": run.summary["policy_lag_mean"],
        "env_steps_per_sec": run.env_steps_per_sec(),
    }


def table(report: Mapping[str, Any], published: Sequence[Mapping[str, Any]], marks: Sequence[int] = MARKS) -> str:
    """Formats return and entropy at the marks as Markdown: the published system's, and each side's by commit."""
    environments, runs = report["environments"], report["runs"]
    sides = {"published": published}
    for name, (index, entry) in itertools.product(SIDES, enumerate(environments)):
        label = f"{name}, {entry['commit']}" if len(environments) > 1 else name
        sides[label] = [run for run in runs if (run["side"], run["environment"]) == (name, index)]
    names = [f"{curve} at {mark // 1000} K" for curve in ("return", "entropy") for mark in marks]
    lines = [f"| | seeds | {' | '.join(names)} | lag |", "|---" * (len(names) + 3) + "|"]
    for side, side_runs in sides.items():
        if not side_runs:
            continue
        cells = []
        for curve in ("return", "entropy"):
            found = [estimate([run["curves"][curve] for run in side_runs], mark) for mark in marks]
            cells += [str(value) if value else "" for value in found]
        lag = statistics.mean(value for run in side_runs for _, value in run["curves"]["policy_lag"])
        lines.append(f"| {side} | {len(side_runs)} | {' | '.join(cells)} | {lag:.1f} |")
    return "\n".join(lines)


def _index(environments: list[dict[str, Any]]) -> int:
    """Returns the index of this commit, these versions and this machine, added where they are new."""
    here = environment()
    for index, entry in enumerate(environments):
        if all(entry.get(name) == here[name] for name in MACHINE):
            return index
    environments.append(here)
    return len(environments) - 1


def main() -> None:
    published = json.loads(PUBLISHED_FILE.read_text())
    assert published["task"] == ROOT_ENV
    report: dict[str, Any] = {"runs": [], "environments": []}
    if JSON.value and os.path.exists(JSON.value):
        report = json.loads(pathlib.Path(JSON.value).read_text())
    index = _index(report["environments"])
    done = {(run["side"], run["seed"]) for run in report["runs"] if run["environment"] == index}
    for seed in range(1, 1 + max(_SEEDS.value, _SEEDS_EACH.value)):
        for name in _SIDES.value:
            if seed > (_SEEDS.value if name == "defaults" else _SEEDS_EACH.value) or (name, seed) in done:
                continue
            report["runs"].append({**run_once(name, seed), "environment": index})
            if JSON.value:
                pathlib.Path(JSON.value).write_text(json.dumps(report) + "\n")
            print(table(report, published["runs"]), flush=True)


if __name__ == "__main__":
    run_app(main)
