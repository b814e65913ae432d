"""Trains all combinations of a grid of settings and seeds; the flags after `--` are those of launch.train.

python -m launch.sweep --grid seed=1-5 -- --config score_retrieval --train_for_env_steps 1000000
"""

import dataclasses
import functools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence

from launch import flags, submit
from launch.ls import ListConfig
from launch.next_commands import command, show, values_of, with_training
from launch.plot import PlotConfig
from launch.program import run_program, split_words
from launch.sweeps import children
from launch.sweeps.grid import GridRun, plan
from launch.sweeps.state import is_finished
from oni_jax.host.files import keep_printing
from oni_jax.host.held_folders import held_folder
from oni_jax.host.memory import LEARNER_BYTES, check_fits
from oni_jax.host.run_files import last_row
from oni_jax.host.runtime import StopRequest, memory_bytes, num_cores
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import Config, check_values
from oni_jax.settings.fields import UserError, counted, setting

MEMORY_OF_RUN_BYTES = 3 << 30  # measured: 1.8 GiB, while a run of NetHack compiles
SEPARATOR = "\n"  # separates words that may hold commas


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """The grid, the folder, and how the runs are started."""

    grid: str = setting(
        "", "Axes NAME=VALUE,VALUE of flags of launch.train; 1-5 is 1,2,3,4,5. All combinations are run.",
        positional=True, repeated=SEPARATOR,
    )  # fmt: skip
    case: str = setting(
        "", "A value of one more axis, 'LABEL: FLAGS' of launch.train; may be given several times.", repeated=SEPARATOR
    )
    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting(
        "sweep", "Name of the sweep's folder, in which each run has one; a sweep that is there is resumed."
    )
    jobs: int = setting(0, "Runs at a time; 0: as many as cores and memory allow, one on each GPU.")
    gpus: str = setting("", "GPUs of the runs, such as 0,1 or a name of nvidia-smi -L; each run sees one.")
    submit: str = setting("", "Options of launch.submit, such as '--time 12:00:00': each run becomes a job of Slurm.")
    dry_run: bool = setting(False, "Show the commands of the runs that are not finished, without starting them.")


def main(argv: Sequence[str] | None = None, left_out: Collection[str] = ()) -> int:
    """Runs the program with a command line (that of the process when None).

    Args:
        argv: command line without the program's name.
        left_out: names of runs that are not started, nor shown in the results.

    Returns:
        The exit code: 0 done or stopped by a signal, 1 a run failed, 2 bad input, 130 interrupted twice.
    """
    if argv is None:
        keep_printing()
    words, training = split_words(argv)
    return run_program("sweep", words, SweepConfig(), check_values, functools.partial(_run, training, left_out))


def _run(training: Sequence[str], left_out: Collection[str], program: SweepConfig, stop: StopRequest) -> int:
    from launch.sweeps import results  # imports SciPy, which takes a while

    variables = dict(os.environ)  # --device of a run, which is parsed next, changes this process's variables
    runs = [run for run in planned(training, program) if run.name not in left_out]
    options, gpus = _options(program.submit), _gpus(program)
    if program.submit:
        submission = flags.parse(options, submit.Submission())
        if submission.job.seeds:
            raise UserError(f"--submit --seeds {submission.job.seeds}: the seeds are a sweep's axis: --grid seed=1-5")
        for run in runs:
            _restore(variables)
            submit.check_job(options, run.words, submission)
    left = [run for run in runs if not is_finished(run)]
    if program.dry_run:
        before = ["launch.submit", *options, "--"] if program.submit else ["launch.train"]
        print("\n".join(shlex.join(["python", "-m", *before, *run.words]) for run in left))
        return 0
    with held_folder(_folder(program), "experiment", stop, above="train_dir"):
        if program.submit:
            failed = any(_submitted(run, options, variables) for run in left)
        else:
            jobs = program.jobs or len(gpus) or default_jobs([run.config for run in runs])
            at_once = min(jobs, len(left))
            check_fits({f"{counted(at_once, 'run')} at a time": at_once * LEARNER_BYTES}, "lower --jobs")
            failed = children.train_all(runs, jobs, stop, variables, gpus)
        lines = results.write(runs, _folder(program))
    print("\n".join(lines), flush=True)
    itself = with_training(command("sweep", SweepConfig(), **values_of(program)), training)
    unfinished = [] if program.submit or all(map(is_finished, runs)) else [itself]
    _show_next(runs, _folder(program), unfinished)
    return 1 if failed else 0


def _submitted(run: GridRun, options: Sequence[str], variables: Mapping[str, str]) -> int:
    """Returns the exit code of launch.submit, whose sbatch gives the job this process's environment."""
    _restore(variables)
    return submit.main([*options, "--", *run.words], shows_next=False)


def _restore(variables: Mapping[str, str]) -> None:
    """Undoes what --device of a run's flags has set in this process's environment."""
    os.environ.clear()
    os.environ.update(variables)


def _show_next(runs: Sequence[GridRun], folder: str, unfinished: Sequence[str]) -> None:
    train_dir, name = os.path.split(folder)
    is_drawn = any(last_row(run.folder) for run in runs) and "," not in name  # a comma joins names
    plot = [command("plot", PlotConfig(), train_dir=train_dir, experiments=name)] if is_drawn else []
    show(*unfinished, *plot, command("ls", ListConfig(), train_dir=folder))


def planned(training: Sequence[str], program: SweepConfig) -> list[GridRun]:
    """Returns the sweep's runs, checked; `training`: flags of launch.train. Raises UserError."""
    return plan(_words(program.grid), _words(program.case), training, _folder(program))


def _folder(program: SweepConfig) -> str:
    return os.path.abspath(os.path.join(program.train_dir, program.experiment))


def _words(text: str) -> list[str]:
    return text.split(SEPARATOR) if text else []


def _options(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"--submit {text}: {error}") from None


def _gpus(program: SweepConfig) -> list[str]:
    """Returns the GPUs that the runs are spread over; none: all runs see what this process sees. Raises UserError."""
    gpus = [gpu.strip() for gpu in program.gpus.split(",")] if program.gpus else []
    if not all(re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", gpu) for gpu in gpus) or len({*gpus}) < len(gpus):
        raise UserError(f"--gpus {program.gpus}: must be different numbers of GPUs, or their names: --gpus 0,1")
    if gpus and program.submit:
        raise UserError("--gpus: Slurm gives each job of --submit its GPUs; leave one of the two out")
    return gpus


def _num_cores_beside(config: Config, num_cores: int) -> int:
    """Returns the number of cores that a run's environments take, beside its learner's."""
    if Plan(config).environment.device is not None:
        return config.devices.cpu_devices - 1
    return 1 if config.actors.actor_pool == "serial" else config.actors.num_workers or num_cores


def default_jobs(configs: Sequence[Config]) -> int:
    """Returns how many runs this machine has cores and memory for at a time: one with a GPU, whose memory JAX fills."""
    if shutil.which("nvidia-smi") and os.environ.get("JAX_PLATFORMS") != "cpu":
        return 1
    cores = num_cores()
    needed = 1 + max(_num_cores_beside(config, cores) for config in configs)
    return max(1, min(cores // needed, memory_bytes() // MEMORY_OF_RUN_BYTES))


if __name__ == "__main__":
    sys.exit(main())
