"""Learning curves from metrics.jsonl, of a run, and of runs that differ only in their seeds."""

import collections
import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.envs.nethack.tasks import GOAL_REWARD, TASKS
from oni_jax.host.files import open_regular
from oni_jax.host.reporting import report
from oni_jax.host.run_files import METRICS, is_of_run, run_id
from oni_jax.ops import episode_sums
from oni_jax.ops.statistics import interquartile_mean, stratified_bootstrap
from oni_jax.rewards.registry import term_labels
from oni_jax.runs.run import Run
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config, listed
from oni_jax.settings.fields import UserError, counted, settings, with_values
from oni_jax.settings.json_text import parsed_object
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import ActorConfig, DevicesConfig

NUM_POINTS = 200  # points of a curve over several runs
NUM_SMOOTHED = 200  # rows; of more, each is averaged with its neighbours
MIN_SEEDS = 3  # fewest for an interval: two have three resamples
NUM_RESAMPLES = 2000  # resamples of seeds, for a curve's interval
SUCCESS = "success"
UNLOCKED = "episode/unlocked"  # achievements in an episode
COVERAGE = "reward/goal_coverage"  # fraction of steps taken with an LLM's answer
EPISODES = "episodes"  # number of ended episodes
OF_EPISODES = ("mean_", "episode/")  # beginnings of the names of means that are taken over episodes
INTRINSIC_RETURN = f"episode/{episode_sums.INTRINSIC_RETURN}<type>"  # stands for those of a run's rewards
EPISODE_SUCCESS = "episode/success"  # mean for environments whose episodes say whether they succeeded
SEPARATORS = "/_-. =,"
DAMAGED, FOREIGN = "damaged row is/damaged rows are", "row of another run is/rows of another run are"
MAX_NAMED = 3  # settings in the name of a curve
# Settings of annotation that runs of one curve may differ in: a seed, addresses, files and limits of requests.
LOCAL = (
    "judge_wrong_seed",
    "llm_server_addr",
    "label_store",
    "llm_max_in_flight",
    "llm_timeout_secs",
    "llm_max_retries",
    "llm_required",
)


@dataclasses.dataclass(frozen=True, eq=False)
class Curves:
    """R rows of a run, without those that a later start repeated."""

    name: str
    config: Config
    env_steps: np.ndarray  # [R] float64, increasing
    hours: np.ndarray  # [R] float64, of training, over all starts
    metrics: Mapping[str, np.ndarray]  # [R] float64 each; NaN where a row lacks it
    labels_by: str = ""  # source of its labels, in words


class Setting(NamedTuple):
    """Runs that differ only in their seeds and machines."""

    label: str
    runs: tuple[Curves, ...]


class Curve(NamedTuple):
    """A metric's interquartile mean over runs, in the range that all of them have covered."""

    x: np.ndarray  # [K]
    mean: np.ndarray  # [K]
    interval: tuple[np.ndarray, np.ndarray] | None  # [K], [K]: of 95 %, by the bootstrap; None below MIN_SEEDS


def read_curves(run: Run, metrics: Collection[str], label: str) -> Curves:
    """Reads these metrics of a run, which is named by the label.

    Damaged rows are left out, and counted in a line.

    Raises:
        UserError: there is no run, it has no rows yet, or a file can't be read.
    """
    config, path = run.config, os.path.join(run.folder, METRICS)
    wanted = {"mean_return", EPISODES, EPISODE_SUCCESS, *metrics}
    wanted |= {name for metric in metrics for name in names_by_reward(metric, labels_of(config))}
    names, of_run = ("env_steps", "secs", *sorted(wanted)), run_id(run.folder)
    try:
        with open_regular(path) as file:
            lines = (line for line in file if line.endswith(b"\n"))  # an unfinished last one is being written
            found = [_numbers(line, names, of_run) for line in lines]
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror}); name a run that has trained") from None
    rows = _without_repeats(row for row in found if not isinstance(row, str))
    for words, number in collections.Counter(row for row in found if isinstance(row, str)).items():
        report(f"{path}: {counted(number, *words.split('/'))} left out")
    if not rows:
        raise UserError(f"{path}: holds no rows yet; wait for the run's first --log_every_sec")
    env_steps, hours, *columns = np.stack(rows, axis=1)
    curves = {name: column for name, column in zip(names[2:], columns) if np.isfinite(column).any()}
    if EPISODE_SUCCESS in curves:
        curves[SUCCESS] = curves[EPISODE_SUCCESS]
    task = TASKS.get(config.env.root_env)
    if task and task.goal and "mean_return" in curves:  # the goal pays once an episode, and nothing else pays
        curves[SUCCESS] = curves["mean_return"] / GOAL_REWARD
    return Curves(label, config, env_steps, hours, curves, run.labels_by())


def names_by_reward(metric: str, labels: Sequence[str]) -> dict[str, str]:
    """Returns the names that a metric has in runs with these rewards, and the reward of each; "": of none."""
    if "<type>" in metric:
        return {metric.replace("<type>", label): label for label in labels}
    if len(labels) < 2 or not re.fullmatch("reward/[^/]+", metric):
        return {metric: ""}
    return {metric: "", **{metric.replace("/", f"/{label}/"): label for label in labels}}


def labels_of(config: Config) -> tuple[str, ...]:
    """Returns the labels of the run's rewards, as in the names of metrics."""
    return term_labels(config)


def _numbers(line: bytes, names: Sequence[str], of_run: str) -> np.ndarray | str:
    """Returns a row's numbers of these names, [K] float64; DAMAGED, also where it lacks one of the first two; FOREIGN.

    of_run: id of the run.
    """
    try:
        row = parsed_object(line)
        if not is_of_run(row, of_run):
            return FOREIGN
        # The names of older files.
        row |= {name.replace("_share", "_fraction"): x for name, x in row.items() if name.endswith("_share")}
        numbers = [float(x) if type(x := row.get(name, "")) in (int, float) else np.nan for name in names]
    except (ValueError, OverflowError):
        return DAMAGED
    return np.array(numbers) if np.isfinite(numbers[:2]).all() else DAMAGED


def _without_repeats(rows: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Converts rows (env_steps, secs, ...) to (env_steps, hours, ...), each step once.

    A start that resumes from a checkpoint repeats the rows after it. Within a start steps may stand still.
    """
    kept: list[np.ndarray] = []
    hours_before, last_secs = 0.0, 0.0
    for row in rows:
        steps, secs = row[:2].tolist()
        is_new_start = secs < last_secs or bool(kept and steps < kept[-1][0])
        while kept and kept[-1][0] >= steps:
            kept.pop()
        if is_new_start:
            hours_before = kept[-1][1] if kept else 0.0
        last_secs = secs
        row[1] = hours_before + secs / 3600
        kept.append(row)
    return kept


def group_runs(runs: Sequence[Curves], title: str = "") -> list[Setting]:
    """Groups runs whose settings are the same, except those of machines and of section `run`.

    A group is named by the words that its runs' names share; else by the settings in which it differs from the others,
    by `title` where it is alone, or by all names.
    """
    groups: dict[Config, list[Curves]] = {}
    for run in runs:
        groups.setdefault(_comparable(run.config), []).append(run)
    labels = [_label([run.name for run in group]) for group in groups.values()]
    if len(groups) < len(runs):
        labels = [
            label if len(group) > 1 else _without_seed(label, group[0].config.run.seed)
            for label, group in zip(labels, groups.values())
        ]
    if "" in labels or len(set(labels)) < len(labels):
        labels = [title] if len(groups) == 1 else _differences([*groups])
    if "" in labels or len(set(labels)) < len(labels):
        labels = [", ".join(run.name for run in group) for group in groups.values()]
    return [Setting(label, tuple(group)) for label, group in zip(labels, groups.values())]


def _differences(configs: Sequence[Config]) -> list[str]:
    """Returns the settings of each configuration in which they differ, in words; empty where they are many."""
    found = [{field.name: value for field, value in listed(config)} for config in configs]
    names = [name for name in found[0] if any(values[name] != found[0][name] for values in found)]
    return [
        ", ".join(f"{name}={values[name]}" for name in names) if len(names) <= MAX_NAMED else "" for values in found
    ]


def _comparable(config: Config) -> Config:
    """Removes seeds, name, limits, machines and files; keeps whether an LLM or the judge answers."""
    defaults = {field.name: value for field, value in settings(AnnotationConfig()) if field.name in LOCAL}

    def without_local(asked: AnnotationConfig) -> AnnotationConfig:
        return with_values(asked, defaults | {"llm_server_addr": "a server" * bool(asked.llm_server_addr)})

    others = tuple((reward, without_local(asked)) for reward, asked in config.others)
    annotation = without_local(config.annotation)
    run = RunConfig(stats_avg=config.run.stats_avg)
    local = {"actors": ActorConfig(), "devices": DevicesConfig()}
    return dataclasses.replace(config, run=run, annotation=annotation, others=others, **local)


def _label(names: Sequence[str]) -> str:
    """Returns the words, numbers and signs with which all names begin, and those with which they end; else ""."""
    if len(names) == 1:
        return names[0]
    pieces = [re.findall(r"[^\W\d_]+|\d+|(?s:.)", name) for name in names]
    common = os.path.commonprefix(pieces)
    rest = min(map(len, pieces)) - len(common)
    last = os.path.commonprefix([piece[::-1][:rest] for piece in pieces])[::-1]
    while last and last[0] not in SEPARATORS:  # the cut is in the middle of a word
        last = last[1:]
    first = "".join(common).rstrip(SEPARATORS).removesuffix("seed").rstrip(SEPARATORS)
    last_words = "".join(last).lstrip(SEPARATORS)
    return "_".join(filter(None, (first, last_words)))


def _without_seed(name: str, seed: int) -> str:
    """Returns a run's name as that of a group in which it is alone: without its seed, unless that is all of it."""
    signs = re.escape(SEPARATORS)
    rest, num = re.subn(rf"(^|[{signs}])seed[{signs}]?{seed}(?=[{signs}]|$)", "", name)
    return (rest.strip(SEPARATORS) if num else "") or name


def series(run: Curves, metric: str, x: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns (x [K], values [K]) where the run has the metric. `x`: env_steps or hours.

    A mean of episodes begins where it is one of as many as it is said to be, if the run has had so many.
    """
    values = run.metrics.get(metric, np.full(len(run.env_steps), np.nan))
    there = np.isfinite(values)
    if metric == SUCCESS or metric.startswith(OF_EPISODES):
        is_full = run.metrics.get(EPISODES, np.zeros(0)) >= run.config.run.stats_avg
        there &= is_full if is_full.any() else True
    return getattr(run, x)[there], smoothed(values[there])


def smoothed(values: np.ndarray) -> np.ndarray:
    """Averages values [K] over a window that grows with K, so that a long run's line can be read."""
    half = len(values) // NUM_SMOOTHED // 2
    if half == 0:
        return values
    window = np.ones(2 * half + 1)
    return np.convolve(values, window, "same") / np.convolve(np.ones_like(values), window, "same")


def mean_curve(runs: Sequence[Curves], metric: str, x: str) -> Curve | None:
    """Returns the interquartile mean of runs, each interpolated linearly between its rows.

    None: their ranges do not overlap.
    """
    lines = [series(run, metric, x) for run in runs]
    if any(len(xs) == 0 for xs, _ in lines):
        return None
    if len(lines) == 1:
        return Curve(*lines[0], None)
    first, last = max(xs[0] for xs, _ in lines), min(xs[-1] for xs, _ in lines)
    if first >= last:
        return None
    grid = np.linspace(first, last, NUM_POINTS)
    values = np.stack([np.interp(grid, xs, ys) for xs, ys in lines], axis=1)
    mean = interquartile_mean(values)
    if len(lines) < MIN_SEEDS:
        return Curve(grid, mean, None)
    return Curve(grid, mean, stratified_bootstrap([values], interquartile_mean, NUM_RESAMPLES))


def last_value(run: Curves, metric: str) -> float | None:
    """Returns the newest value of a metric; None when the run has none."""
    values = run.metrics.get(metric, np.zeros(0))
    there = values[np.isfinite(values)]
    return float(there[-1]) if len(there) else None
