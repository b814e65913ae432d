"""Writes a run's settings, curves, evaluation, captions and recordings into one self-contained HTML file; or a sweep's.

python -m launch.report --experiment score_retrieval
python -m launch.report train_dir/sweep
"""

import contextlib
import os
import sys

from launch.next_commands import command, further_steps, resuming, show
from launch.program import brief_program
from oni_jax.envs.registry import display_of
from oni_jax.evaluation.config import RANDOM, EvaluationConfig
from oni_jax.host.files import write_output
from oni_jax.host.run_files import saved_steps
from oni_jax.runs.experiment import is_running
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError, counted
from oni_jax.show.report.config import ReportConfig, check_report
from oni_jax.show.report.listing import runs_inside

OF_RUNS = ("evaluation", "dataset_dir")  # flags


def _run(config: ReportConfig) -> int:
    if inside := runs_inside(config.folder):
        from oni_jax.show.report.sweep import make_sweep_report  # imports matplotlib, which takes a second

        if of_runs := [f"--{name}" for name in OF_RUNS if getattr(config, name) != getattr(ReportConfig, name)]:
            raise UserError(f"{of_runs[0]}: is for a run's report; {config.folder} holds {counted(len(inside), 'run')}")
        _write(config, make_sweep_report(config.folder, inside))
        return 0
    from oni_jax.host.caches import keep_compiled_code
    from oni_jax.offline.dataset import caption_counts
    from oni_jax.show.report.report import make_report  # imports JAX and matplotlib, which take seconds

    keep_compiled_code()
    data = make_report(config, caption_counts(config.dataset_dir) if config.dataset_dir else None)
    _write(config, data)
    _show_next(config)
    return 0


def _write(config: ReportConfig, data: bytes) -> None:
    path = config.html or os.path.join(config.folder, "report.html")
    write_output("html", path, data)
    print(f"{path}: {len(data) / 2**20:.1f} MiB")


def _show_next(config: ReportConfig) -> None:
    """Prints what would fill the parts that the report lacks, and how to go on with a run that has ended."""
    of = Run(config.folder)
    run = of.config
    named = {"train_dir": config.train_dir, "experiment": config.experiment}
    found, saved = [], saved_steps(config.folder)
    evaluation = os.path.join(config.folder, "evaluation.json")
    if saved and not (config.evaluation or os.path.exists(evaluation)):
        found.append(command("evaluate", EvaluationConfig(), **named, compare=RANDOM, json=evaluation))
    with contextlib.suppress(UserError):  # its plugin may be missing
        if saved and not os.path.isdir(os.path.join(config.folder, "recordings")) and display_of(of.plan.config.env):
            found.append(command("evaluate", EvaluationConfig(), **named, record=1))
    if saved and not is_running(config.folder):
        found += resuming(run, config.folder, **further_steps(run.run, saved[-1]))
    show(*found)


main = brief_program("report", ReportConfig(), check_report, _run)

if __name__ == "__main__":
    sys.exit(main())
