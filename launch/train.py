"""Trains an agent (or resumes the training of one).

python -m launch.train --config score_retrieval --experiment first --train_for_env_steps 1000000
"""

import os
import sys
from collections.abc import Sequence

import oni_jax
from launch import flags, help
from launch.next_commands import command, show
from launch.plot import PlotConfig
from launch.program import run_program
from oni_jax.config import Config, num_processes
from oni_jax.envs.registry import find_environment
from oni_jax.evaluation.config import RANDOM, SAMPLE, EvaluationConfig
from oni_jax.reporting.config import ReportConfig
from oni_jax.run_files import METRICS, saved_steps
from oni_jax.runtime import ChildError, StopRequest, tune_memory
from oni_jax.viewing.config import PlayConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None).

    Returns:
        The exit code: 0 done or stopped by a signal, 2 bad input (one line on stderr), 130 interrupted twice.
    """
    if argv is None and not help.wants_help(sys.argv[1:]):
        tune_memory()
    return run_program("train", argv, flags.TRAINING, lambda config: None, _run)  # `oni_jax.train` checks


def _run(config: Config, stop: StopRequest) -> int:
    stop.usr1_saves = config.run.on_sigusr1 == "save"
    try:
        oni_jax.train(config, stop=stop)
    except ChildError:  # a checkpoint is saved
        _show_next(config)
        raise
    _show_next(config)
    return 0


def _show_next(config: Config) -> None:
    """Prints how to go on with a run that has a checkpoint. Of several processes, each would need its own flags."""
    run = config.run
    folder = os.path.normpath(os.path.join(run.train_dir, run.experiment))
    saved = saved_steps(folder)
    if not saved or num_processes(config.devices) > 1:
        return
    done = saved[-1] >= run.train_for_env_steps
    further = {"train_for_env_steps": saved[-1] + run.train_for_env_steps} if done else {}
    named = {"train_dir": run.train_dir, "experiment": run.experiment}
    found = [command("train", config, resume=folder, **further)]
    evaluation = os.path.join(folder, "evaluation.json")
    found.append(command("evaluate", EvaluationConfig(), **named, compare=RANDOM, json=evaluation))
    if find_environment(config.env).display:
        found.append(command("play", PlayConfig(), **named, policy=SAMPLE))
    if os.path.exists(os.path.join(folder, METRICS)):
        found.append(command("plot", PlotConfig(), train_dir=run.train_dir, experiments=run.experiment))
        found.append(command("report", ReportConfig(), **named))
    print(f"{folder}: saved at {saved[-1]:,} environment steps")
    if any(own.annotation.llm_api_key for own in config.terms()):
        print("launch.train --resume needs --llm_api_key again: it is not saved")
    show(*found)


if __name__ == "__main__":
    sys.exit(main())
