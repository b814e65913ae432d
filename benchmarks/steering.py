"""Behaviour of the agents of a study of goals on held-out episodes: the agent of all goals under each, and others.

python -m benchmarks.steering --study steer --train_dir train_dir/studies
"""

import importlib
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence

from absl import app, flags

from oni_jax.api import load_run
from oni_jax.evaluation.report import interval, number
from oni_jax.ops.statistics import summarise
from oni_jax.settings.fields import UserError

_STUDY = flags.DEFINE_enum("study", "steer", ["steer", "steer_babyai"], "Whose runs play.")
_TRAIN_DIR = flags.DEFINE_string("train_dir", "train_dir/studies", "Folder of the studies' runs.")
_EPISODES = flags.DEFINE_integer("episodes", 64, "Episodes of each policy.", 1)
_OUT = flags.DEFINE_string("out", "", "File of JSON for the means.")

Means = Mapping[str, float]  # means over a policy's episodes, by behaviour


def played(folder: str, num_episodes: int, goal: str = "") -> Means:
    """Returns the means of what a run's policy does."""
    found = load_run(folder).evaluate(num_episodes, goal=goal) if goal else load_run(folder).evaluate(num_episodes)
    return {name: float(values.mean()) for name, values in found.behaviours().items()}


def tables(of_policies: Mapping[str, Sequence[Means]]) -> list[str]:
    """Returns lines: each behaviour, and of each policy the mean over its seeds with the bootstrap's interval."""
    names = set.intersection(*({*means} for runs in of_policies.values() for means in runs))
    lines = []
    for name in sorted(names):
        lines.append(f"{name}:")
        for policy, runs in of_policies.items():
            values = [means[name] for means in runs]
            lines.append(f"  {policy:<24} {number(statistics.fmean(values))} {interval(summarise(values).interval)}")
    return lines


def contrast(more: Sequence[Means], less: Sequence[Means], name: str) -> str:
    """Returns the difference of a behaviour, paired by the seeds, in words; the interval is Student's."""
    from scipy import stats

    values = [a[name] - b[name] for a, b in zip(more, less, strict=True)]
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return f"{number(mean)} (one seed)"
    half = float(stats.t.ppf(0.975, count - 1)) * statistics.stdev(values) / math.sqrt(count)
    return f"{number(mean)} [{number(mean - half)}, {number(mean + half)}]"


def main(argv: Sequence[str]) -> int:
    study = importlib.import_module(f"benchmarks.studies.{_STUDY.value}")
    runs: dict[str, list[str]] = {}
    for name, cell in study.STUDY.planned().items():
        folder = os.path.join(_TRAIN_DIR.value, study.STUDY.name, name)
        if os.path.isdir(os.path.join(folder, "checkpoints")):
            runs.setdefault(cell["case"], []).append(folder)
    if study.TOGETHER not in runs:
        command = f"python -m benchmarks.studies run {study.STUDY.name}"
        raise UserError(f"{_TRAIN_DIR.value}: has no run of {study.TOGETHER}: {command}")
    found = {
        f"all goals, under {goal}": [played(folder, _EPISODES.value, goal) for folder in runs[study.TOGETHER]]
        for goal in study.GOALS
    }
    for case, folders in runs.items():
        if case != study.TOGETHER:
            found[case] = [played(folder, _EPISODES.value) for folder in folders]
    print("\n".join(tables(found)))
    pairs = [("kills", "combat", "gold"), ("gold", "gold", "combat")] if _STUDY.value == "steer" else []
    for name, first, second in pairs:
        for label, of in (("one agent", "all goals, under {}"), ("an agent each", "{}_alone")):
            sides = found.get(of.format(first)), found.get(of.format(second))
            if all(sides):
                print(f"{name}, {first} minus {second}, {label}: {contrast(*sides, name)}")  # type: ignore
    if _OUT.value:
        with open(_OUT.value, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    return 0


if __name__ == "__main__":
    app.run(main)
