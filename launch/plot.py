"""Draws learning curves over seeds, labels, the reward model's accuracy and speed, each as PNG and PDF.

python -m launch.plot score_retrieval score_extrinsic
"""

import dataclasses
import os
import sys
from collections.abc import Sequence

from launch.next_commands import command, show
from launch.program import brief_program
from oni_jax.host.run_files import last_row
from oni_jax.metrics.names import METRICS
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import UserError, nearest, printable, setting
from oni_jax.show.report.config import ReportConfig
from oni_jax.show.report.listing import PLOTS, run_folder, runs_inside


@dataclasses.dataclass(frozen=True)
class PlotConfig:
    """The runs, and the folder for the files. Runs that differ only in seed and machine are one line of a figure."""

    experiments: str = setting(
        "",
        "Runs, and sweeps with all of their runs, by name in train_dir, or by folder; they may be going on.",
        positional=True,
    )
    train_dir: str = setting("./train_dir", "Folder of experiments.")
    metrics: str = setting(
        "",
        "Metrics to draw in place of the usual figures, with commas: names as in metrics.jsonl, or "
        "episode/intrinsic_return/<type> for all rewards.",
        repeated=",",
    )
    plots_dir: str = setting(
        "", "Folder for the files; empty: plots, in the folder of the run or sweep, or in that around several."
    )


def _check(config: PlotConfig) -> None:
    check_values(config)
    if not _names(config):
        raise UserError("name the experiments: python -m launch.plot EXPERIMENT...")


def _run(config: PlotConfig) -> int:
    from oni_jax.show.report.panels import FIGURES, chosen_figures, metrics_of
    from oni_jax.show.report.plots import read_settings, write_figures  # imports matplotlib, which takes a second

    chosen = [name.strip() for name in config.metrics.split(",") if name.strip()]
    figures = chosen_figures(chosen) if chosen else FIGURES
    folders, skipped = _folders(config)
    settings = read_settings(folders, metrics_of(figures))
    for group in settings:
        seeds = [run.config.run.seed for run in group.runs]
        repeated = "" if len(set(seeds)) == len(seeds) else "; some have the same seed"
        of = ", ".join(f"{run.name} (seed {run.config.run.seed})" for run in group.runs)
        print(printable(f"{group.label}: {of}{repeated}"))
    written, missing = write_figures(settings, config.plots_dir or _plots_dir(config, folders), figures)
    if missing and not chosen:
        print(f"not drawn, since no run has data for it: {', '.join(missing)}")
    print("\n".join([*(f"skipped {line}" for line in skipped), *written]))
    if missing and chosen:
        metric = figures[missing[0]][0].metric
        hint = (metric not in METRICS and nearest(metric, METRICS)) or "; docs/metrics.md lists all"
        raise UserError(f"--metrics {metric}: no run has data for it{hint}")
    if len(named := _named(config)) == 1:
        train_dir, name = os.path.split(named[0])
        show(command("report", ReportConfig(), train_dir=train_dir, experiment=name))
    return 0


def _names(config: PlotConfig) -> list[str]:
    """Returns the unique names, in order."""
    return list(dict.fromkeys(name.rstrip("/") for name in config.experiments.split(",") if name.strip("/")))


def _named(config: PlotConfig) -> list[str]:
    """Returns the unique folders that are named, in order."""
    found: dict[str, str] = {}
    for name in _names(config):
        folder = run_folder(config.train_dir, name)
        found.setdefault(os.path.realpath(folder), folder)
    return [*found.values()]


def _folders(config: PlotConfig) -> tuple[list[str], list[str]]:
    """Returns the folders of the runs, those of sweeps with rows among them, and the names of their other runs."""
    found: dict[str, str] = {}
    skipped: list[str] = []
    for folder in _named(config):
        inside = [os.path.join(folder, name) for name in runs_inside(folder)]
        there = [path for path in inside if last_row(path)]
        skipped += [f"{printable(path)}: has no rows yet" for path in inside if there and path not in there]
        for path in there or [folder]:
            found.setdefault(os.path.realpath(path), path)
    return [*found.values()], skipped


def _plots_dir(config: PlotConfig, folders: Sequence[str]) -> str:
    named = _named(config)
    around = named[0] if len(named) == 1 else os.path.commonpath([os.path.abspath(path) for path in folders])
    return os.path.join(around, PLOTS)


main = brief_program("plot", PlotConfig(), _check, _run)

if __name__ == "__main__":
    sys.exit(main())
