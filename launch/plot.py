"""Draws learning curves over seeds, labels, the reward model's accuracy and speed, each as PNG and PDF.

python -m launch.plot score_retrieval score_extrinsic
"""

import dataclasses
import os
import sys
from collections.abc import Sequence

from launch.next_commands import command, show
from launch.program import brief_program
from oni_jax.metrics.names import METRICS
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import UserError, nearest, printable, setting
from oni_jax.show.report.config import ReportConfig


@dataclasses.dataclass(frozen=True)
class PlotConfig:
    """The runs, and the folder for the files. Runs that differ only in seed and machine are one line of a figure."""

    experiments: str = setting("", "Runs by name in train_dir, or by folder; they may be going on.", positional=True)
    train_dir: str = setting("./train_dir", "Folder of experiments.")
    metrics: str = setting(
        "",
        "Metrics to draw instead of the usual figures, with commas between them: names as in metrics.jsonl, or "
        "episode/intrinsic_return/<type> for those of all rewards.",
        repeated=",",
    )
    plots_dir: str = setting("", "Folder for the files; empty: plots, in the folder of the first experiment.")


def _check(config: PlotConfig) -> None:
    check_values(config)
    if not _names(config):
        raise UserError("name the experiments: python -m launch.plot EXPERIMENT...")


def _run(config: PlotConfig) -> int:
    from oni_jax.runs.curves import group_runs
    from oni_jax.runs.run import Run
    from oni_jax.show.report.panels import FIGURES, chosen_figures, metrics_of
    from oni_jax.show.report.plots import write_figures  # imports matplotlib, which takes a second

    chosen = [name.strip() for name in config.metrics.split(",") if name.strip()]
    figures = chosen_figures(chosen) if chosen else FIGURES
    unique: dict[str, str] = {}  # path -> first name of the run
    for name in _names(config):
        unique.setdefault(os.path.realpath(_folder(config, name)), name)
    names = list(unique.values())
    folders = [_folder(config, name) for name in names]
    settings = group_runs(
        [Run(folder).metrics(metrics_of(figures), name) for folder, name in zip(folders, _short(names))]
    )
    for own in settings:
        seeds = [run.config.run.seed for run in own.runs]
        repeated = "" if len(set(seeds)) == len(seeds) else "; some have the same seed"
        of = ", ".join(f"{run.name} (seed {run.config.run.seed})" for run in own.runs)
        print(printable(f"{own.label}: {of}{repeated}"))
    written, missing = write_figures(settings, config.plots_dir or os.path.join(folders[0], "plots"), figures)
    if missing and not chosen:
        print(f"not drawn, since no run has data for it: {', '.join(missing)}")
    print("\n".join(written))
    if missing and chosen:
        metric = figures[missing[0]][0].metric
        hint = (metric not in METRICS and nearest(metric, METRICS)) or "; docs/metrics.md lists all"
        raise UserError(f"--metrics {metric}: no run has data for it{hint}")
    if len(names) == 1:
        train_dir, name = os.path.split(folders[0])
        show(command("report", ReportConfig(), train_dir=train_dir, experiment=name))
    return 0


def _names(config: PlotConfig) -> list[str]:
    """Returns the unique names, in order."""
    return list(dict.fromkeys(name.rstrip("/") for name in config.experiments.split(",") if name.strip("/")))


def _short(names: Sequence[str]) -> Sequence[str]:
    """Shortens folders to their last names, if these differ."""
    last = [os.path.basename(name) if os.path.isdir(name) else name for name in names]
    return last if len(set(last)) == len(last) else names


def _folder(config: PlotConfig, name: str) -> str:
    inside = os.path.join(config.train_dir, name)
    return name if os.path.isdir(name) and not os.path.isdir(inside) else inside


main = brief_program("plot", PlotConfig(), _check, _run)

if __name__ == "__main__":
    sys.exit(main())
