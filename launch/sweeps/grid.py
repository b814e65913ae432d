"""The runs of a sweep: all combinations of a grid's values, each a checked command line of launch.train."""

import dataclasses
import itertools
import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from launch import flags
from oni_jax.host.run_files import SETTINGS
from oni_jax.networks.registry import AUTO
from oni_jax.rewards.registry import NONE, reward_type
from oni_jax.runs.experiment import experiment_folder
from oni_jax.runs.plan import with_choices
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config, changed
from oni_jax.settings.fields import UserError, sections
from oni_jax.settings.run import RunConfig

MAX_RUNS = 1000
SEED, CASE = "seed", "case"
_OF_SWEEP = ("train_dir", "experiment")
_LIMITS = ("train_for_env_steps", "train_for_seconds")


class GridRun(NamedTuple):
    name: str  # name of its folder in the sweep's
    cell: Mapping[str, str]  # axis -> value, without the seed's; runs of one cell differ in their seeds
    words: tuple[str, ...]  # flags of launch.train
    config: Config

    @property
    def folder(self) -> str:
        return experiment_folder(self.config)


class Value(NamedTuple):
    """A value of an axis: its name in the results, and the flags that it sets."""

    label: str
    words: tuple[str, ...]


def plan(axes: Sequence[str], cases: Sequence[str], training: Sequence[str], folder: str) -> list[GridRun]:
    """Makes the runs of a sweep: cases first, then the axes in order, the last one fastest.

    Args:
        axes: `name=value,value`; `a-b` is the integers from a to b. `name+other=...` gives both flags the same
            value; one with the seed in it is that of the seeds.
        cases: `LABEL: FLAGS`, values of one more axis, which may override `training`.
        training: flags of launch.train for all runs.
        folder: folder of the sweep, in which each run has a folder.

    Raises:
        UserError: a bad axis or case, too many runs, the same run twice, a run that launch.train would refuse, or the
            folder holds a run of the same name with other settings.
    """
    grid = _grid(axes, cases)
    if not grid:
        raise UserError("give a grid: python -m launch.sweep --grid seed=1-5 -- --config NAME ...")
    _check_flags(grid, training)
    sizes = [len(values) for values in grid.values()]
    if (num_runs := math.prod(sizes)) > MAX_RUNS:
        raise UserError(f"--grid: {' x '.join(map(str, sizes))} are {num_runs:,} runs; {MAX_RUNS:,} is the most")
    runs = [_run(combination, training, folder) for combination in _combinations(grid)]
    _check_unique(runs)
    for run in runs:
        _check_folder(run)
    return runs


def planned(axes: Sequence[str], cases: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns the labels of each run that a sweep would have, axis -> value, by the run's name; checks no flags."""
    found = (_labels(combination) for combination in _combinations(_grid(axes, cases)))
    return {_name(labels): labels for labels in found}


def _grid(axes: Sequence[str], cases: Sequence[str]) -> dict[str, list[Value]]:
    grid = {CASE: _case_values(cases)} if cases else {}
    for axis in axes:
        name, values = _axis_values(axis)
        if name in grid:
            raise UserError(f"--grid {name}: is there twice; give all its values in one, as in {name}=1,2")
        grid[name] = values
    return grid


def _combinations(grid: Mapping[str, Sequence[Value]]) -> Iterator[dict[str, Value]]:
    return (dict(zip(grid, values)) for values in itertools.product(*grid.values()))


def _labels(values: Mapping[str, Value]) -> dict[str, str]:
    return {name: value.label for name, value in values.items()}


def _name(labels: Mapping[str, str]) -> str:
    parts = [label if name == CASE else f"{name}={label}" for name, label in labels.items()]
    return re.sub(r"[^\w.,+=-]", "-", "_".join(parts))


def _axis_values(text: str) -> tuple[str, list[Value]]:
    name, equals, values = text.partition("=")
    other_names = flags.aliases(Config())
    names = [setting.lstrip("-").replace("-", "_") for setting in name.split("+")]
    names = [other_names.get(setting, setting) for setting in names]
    labels = [label for part in values.split(",") for label in _expanded(part)]
    if "" in names or not equals or "" in labels:
        raise UserError(f"--grid {text!r}: write name=value,value with no value empty, such as seed=1-5")
    axis = SEED if SEED in names else names[0]
    return axis, [Value(label, tuple(f"--{setting}={label}" for setting in names)) for label in labels]


def _expanded(part: str) -> Sequence[str]:
    """Returns the integers of a range, else the value."""
    if not (found := re.fullmatch(r"(\d+)-(\d+)", part)):
        return [part]
    low, high = int(found[1]), int(found[2])
    if not 0 <= high - low < MAX_RUNS:
        raise UserError(f"--grid {part}: a range goes up, and has at most {MAX_RUNS:,} values")
    return [str(value) for value in range(low, high + 1)]


def _case_values(cases: Sequence[str]) -> list[Value]:
    found = []
    for case in cases:
        label, colon, text = case.partition(":")
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UserError(f"--case {case!r}: {error}") from None
        if not colon or not re.fullmatch(r"[\w.+-]+", label):
            raise UserError(f"--case {case!r}: write LABEL: FLAGS, such as 'rnd: --llm_reward_type rnd'")
        found.append(Value(label, tuple(words)))
    return found


def _check_flags(grid: Mapping[str, Sequence[Value]], training: Sequence[str]) -> None:
    """Raises UserError: a flag is unknown, or is set by two parts of the sweep of which one would not hold."""
    of_all = _flags_set((), training)
    of_cases = {name for value in grid.get(CASE, ()) for name in _flags_set(training, value.words)}
    if of_sweep := [name for name in _OF_SWEEP if name in of_all | of_cases]:
        raise UserError(f"--{of_sweep[0]}: is a flag of the sweep: give it before --")
    of_axes = [
        name for axis, values in grid.items() if axis != CASE for name in sorted(_flags_set(training, values[0].words))
    ]
    for name in of_axes:
        if name in _OF_SWEEP:
            raise UserError(f"--grid {name}: each run has a folder in the sweep's; use --{name} of the sweep")
        if name in of_all | of_cases or of_axes.count(name) > 1:
            where = "after --" if name in of_all else "in a --case" if name in of_cases else "twice"
            raise UserError(f"--grid {name}: --{name} is also given {where}")


def _flags_set(training: Sequence[str], words: Sequence[str]) -> set[str]:
    """Returns the names of the flags that `words` give after those of `training`, whose plugins may bring some."""
    defaults = flags.with_sources([*training, *words], Config())
    known, other_names = flags.define_flags(defaults), flags.aliases(defaults)
    return {word[2:].partition("=")[0] for word in flags.normalise(words, known, other_names)}


def _run(values: Mapping[str, Value], training: Sequence[str], folder: str) -> GridRun:
    labels = _labels(values)
    name = _name(labels)
    train_dir, experiment = os.path.split(folder)
    words = [*training, *(word for value in values.values() for word in value.words)]
    words += [f"--train_dir={train_dir}", f"--experiment={experiment}/{name}"]
    try:
        config = flags.parse(words)
        if "llm_reward_type" in values and reward_type(config) is NONE:  # the coefficient is the others'
            words.append("--llm_reward_coeff=0")
            config = flags.parse(words)
        flags.check(config)
    except UserError as error:
        raise UserError(f"run {name}: {error}") from None
    if all(getattr(config.run, name) == getattr(RunConfig, name) for name in _LIMITS):
        raise UserError(f"run {name}: would never end; add --train_for_env_steps or --train_for_seconds after --")
    return GridRun(name, {axis: label for axis, label in labels.items() if axis != SEED}, tuple(words), config)


def _check_unique(runs: Sequence[GridRun]) -> None:
    names: dict[Config, str] = {}
    for run in runs:
        config = dataclasses.replace(run.config, run=dataclasses.replace(run.config.run, experiment=""))
        if config in names:
            raise UserError(f"--grid: {names[config]} and {run.name} are the same run; leave one out")
        if run.name in names.values():
            raise UserError(f"--grid: two runs would have the folder {run.name}; leave one out")
        names[config] = run.name


def _check_folder(run: GridRun) -> None:
    """Raises UserError when a run of this name has other settings, but for those of limits, logs and machines."""
    if not os.path.exists(os.path.join(run.folder, SETTINGS)):
        return
    parts = sections(run.config)
    local = (parts["run"], parts["actors"], parts["devices"])
    free = {field.name for part in local for field in dataclasses.fields(part)} - {SEED}
    free |= {"llm_server_addr", "llm_max_in_flight", "llm_timeout_secs", "llm_max_retries"}
    # Settings left to the machine and the environment: the run has what suited them.
    free |= {"batch_size"} if not run.config.learner.batch_size else set()
    free |= {name for name in ("precision", "encoder_custom") if getattr(run.config.network, name) == AUTO}
    both = map(with_choices, (Run(run.folder).config, run.config))
    found = [text for text in changed(*both) if text.split(":")[0] not in free]
    if found:
        raise UserError(
            f"{run.folder} holds a run with other settings ({'; '.join(found)}); remove it, or choose another "
            "--experiment"
        )
