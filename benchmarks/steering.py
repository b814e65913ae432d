"""Behaviour of the agents of a study of goals on held-out episodes: the agent of all goals under each, and others.

python -m benchmarks.steering --study steer --train_dir train_dir/studies
"""

import importlib
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from absl import app, flags

from benchmarks.studies.base import UNDER, Pair
from oni_jax.api import load_run
from oni_jax.evaluation.report import interval, number
from oni_jax.evaluation.results import INTRINSIC_RETURN, Evaluation
from oni_jax.host.run_files import steps_are_done
from oni_jax.ops.statistics import summarise
from oni_jax.settings.fields import UserError

Means = Mapping[str, float]  # means over a policy's episodes, by behaviour
ALONE = "_alone"  # end of the name of the policy of an agent of one goal
STEPS = 1000
COUNTED = ("kills", "gold")  # behaviours that longer episodes have more of; also counted per so many steps
RATE = f"{{}} in {STEPS:,} steps"


def means_of(evaluation: Evaluation) -> dict[str, float]:
    """Returns the means of what a policy does; of the counted behaviours also the number in so many steps."""
    means = {name: float(values.mean()) for name, values in evaluation.behaviours().items()}
    rates = {RATE.format(name): STEPS * means[name] / means["length"] for name in COUNTED if name in means}
    return means | rates


def played(folder: str, num_episodes: int, is_of_goals: bool) -> dict[str, Means]:
    """Returns {goal: means}; of an agent that has one goal under ""."""
    run = load_run(folder)
    if not is_of_goals:
        return {"": means_of(run.evaluate(num_episodes))}
    return {goal: means_of(evaluation) for goal, evaluation in run.evaluate_by_goal(num_episodes).items()}


def with_goal(means: Means, goal: str) -> Means:
    """Returns the means of an agent of one goal, whose labels' return has the name that it has among several goals."""
    return {f"{name}_{goal}" if name.startswith(INTRINSIC_RETURN) else name: mean for name, mean in means.items()}


def tables(of_policies: Mapping[str, Sequence[Means]]) -> list[str]:
    """Returns lines: each behaviour, and of each policy the mean over its seeds with the bootstrap's interval."""
    names = {name for runs in of_policies.values() for means in runs for name in means}
    lines = []
    for name in sorted(names):
        lines.append(f"{name}:")
        for policy, runs in of_policies.items():
            if not all(name in means for means in runs):
                continue
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


def contrasts(of_policies: Mapping[str, Sequence[Means]], pairs: Sequence[Pair]) -> list[str]:
    """Returns lines: behaviours, each under a goal minus under another, of the one agent and of an agent for each."""
    lines = []
    with_rates = [(name, pair) for pair in pairs for name in (pair.behaviour, RATE.format(pair.behaviour))]
    for name, (_, first, second) in with_rates:
        for label, of in (("one agent", UNDER), ("an agent each", "{}" + ALONE)):
            more, less = (of_policies.get(of.format(goal), ()) for goal in (first, second))
            if more and less and all(name in means for means in (*more, *less)):
                lines.append(f"{name}, {first} minus {second}, {label}: {contrast(more, less, name)}")
    return lines


def behaviours(study: str, train_dir: str, play: Callable[[str, bool], Mapping[str, Means]]) -> dict[str, list[Means]]:
    """Returns what the policies of a study's runs that have ended do, of each policy by seed.

    Args:
        study: its module's name.
        train_dir: folder of the studies.
        play: (a run's folder, whether it has several goals) -> {goal: means}; see `played`.

    Raises:
        UserError: no run of the agent of all goals has ended.
    """
    module = importlib.import_module(f"benchmarks.studies.{study}")
    runs: dict[str, list[str]] = {}
    for run in module.STUDY.runs(train_dir):
        if steps_are_done(run.config.run, run.folder):
            runs.setdefault(run.cell["case"], []).append(run.folder)
    if module.TOGETHER not in runs:
        command = f"python -m benchmarks.studies run {module.STUDY.name}"
        raise UserError(f"{train_dir}: has no run of {module.TOGETHER} that has ended: {command}")
    together = [play(folder, True) for folder in runs.pop(module.TOGETHER)]
    found = {UNDER.format(goal): [means[goal] for means in together] for goal in module.GOALS}
    for case, folders in runs.items():
        goal = case.removesuffix(ALONE) if case.endswith(ALONE) else ""
        of_case = [play(folder, False)[""] for folder in folders]
        found[case] = [with_goal(means, goal) for means in of_case] if goal else of_case
    return found


def main(argv: Sequence[str]) -> int:
    values = flags.FLAGS.flag_values_dict()
    study, num_episodes, out = values["study"], values["episodes"], values["out"]
    found = behaviours(
        study, values["train_dir"], lambda folder, is_of_goals: played(folder, num_episodes, is_of_goals)
    )
    print("\n".join([*tables(found), *contrasts(found, importlib.import_module(f"benchmarks.studies.{study}").PAIRS)]))
    if out:
        with open(out, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    return 0


if __name__ == "__main__":
    flags.DEFINE_enum("study", "steer", ["steer", "steer_babyai"], "Whose runs play.")
    flags.DEFINE_string("train_dir", "train_dir/studies", "Folder of the studies' runs.")
    flags.DEFINE_integer("episodes", 64, "Episodes of each policy.", 1)
    flags.DEFINE_string("out", "", "File of JSON for the means.")
    app.run(main)
