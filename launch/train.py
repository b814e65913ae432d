"""Trains an agent (or resumes the training of one).

python -m launch.train --config score_retrieval --experiment first --train_for_env_steps 1000000
"""

import functools
import os
import sys
from collections.abc import Sequence

import oni_jax
from launch import flags, help
from launch.interrupts import held_back
from launch.next_commands import command, further_steps, resuming, show
from launch.plot import PlotConfig
from launch.program import run_program
from oni_jax.envs.registry import display_of
from oni_jax.evaluation.config import RANDOM, SAMPLE, EvaluationConfig
from oni_jax.host.large_pages import tune_memory
from oni_jax.host.run_files import METRICS, saved_steps
from oni_jax.host.runtime import StopRequest
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, counted
from oni_jax.settings.worlds import is_primary_process
from oni_jax.show.config import PlayConfig
from oni_jax.show.report.config import ReportConfig


def main(argv: Sequence[str] | None = None, shows_next: bool = True) -> int:
    """Runs the program with a command line (that of the process when None).

    Args:
        argv: command line without the program's name.
        shows_next: prints the commands that come next.

    Returns:
        The exit code: 0 done or stopped by a signal, 1 a process of the run failed, 2 bad input (one
        line on stderr), 130 interrupted twice.
    """
    if argv is None and not help.wants_help(sys.argv[1:]):
        with held_back():  # also while the program that replaces this one starts
            tune_memory()
    run = functools.partial(_run, shows_next)
    return run_program("train", argv, flags.TRAINING, lambda config: None, run)  # `oni_jax.train` checks


def _run(shows_next: bool, config: Config, stop: StopRequest) -> int:
    shows_next = shows_next and is_primary_process(config.devices)
    try:
        oni_jax.train(config, stop=stop)
    except UserError:
        raise
    except Exception:  # an error of an actor or a plugin: a checkpoint is saved
        if shows_next:
            _show_next(config)
        raise
    if shows_next:
        _show_next(config)
    return 0


def _show_next(config: Config) -> None:
    """Prints how to go on with a run that has a checkpoint."""
    run = config.run
    folder = os.path.normpath(os.path.join(run.train_dir, run.experiment))
    saved = saved_steps(folder)
    if not saved:
        return
    named = {"train_dir": run.train_dir, "experiment": run.experiment}
    found = resuming(config, folder, **further_steps(run, saved[-1]))
    evaluation = os.path.join(folder, "evaluation.json")
    found.append(command("evaluate", EvaluationConfig(), **named, compare=RANDOM, json=evaluation))
    if display_of(config.env):
        found.append(command("play", PlayConfig(), **named, policy=SAMPLE))
    if os.path.exists(os.path.join(folder, METRICS)):
        found.append(command("plot", PlotConfig(), train_dir=run.train_dir, experiments=run.experiment))
        found.append(command("report", ReportConfig(), **named))
    print(f"{folder}: saved at {counted(saved[-1], 'environment step')}")
    for name in ("llm_api_key", "llm_extra_headers"):
        if any(getattr(term.annotation, name) for term in config.terms()):
            print(f"a resumed run needs --{name} again: it is not saved")
    show(*found)


if __name__ == "__main__":
    sys.exit(main())
