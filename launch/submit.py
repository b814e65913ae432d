"""Submits a training job to Slurm; the flags after `--` are those of launch.train.

python -m launch.submit --server node -- --config score_retrieval
"""

import dataclasses
import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

from launch import flags
from launch.ls import ListConfig
from launch.next_commands import STARTED_BY, command, show, values_of, with_training
from launch.program import run_brief_program, split_words
from oni_jax.rewards.registry import questions
from oni_jax.settings.config import Config, check_values
from oni_jax.settings.fields import UserError, setting
from oni_jax.settings.learning import check_batch_size

LAUNCH = pathlib.Path(__file__).resolve().parent
TEMPLATES = {"none": "train.sbatch", "node": "train_with_server.sbatch", "beside": "train_beside_server.sbatch"}
HETJOB = "#SBATCH hetjob\n"
TIMES = r"\d+|\d+:\d+(:\d+)?|\d+-\d+(:\d+){0,2}"  # minutes, m:s, h:m:s, days-h, ...
SEEDS = r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?"  # sbatch's --array


@dataclasses.dataclass(frozen=True)
class JobConfig:
    """Slurm's resources and options of the job."""

    nodes: int = setting(1, "Training nodes, each with a learner process and environments.", within="[1, inf)")
    gpus_per_node: int = setting(1, "GPUs of each training node.")
    cpus_per_node: int = setting(32, "CPU cores of each training node, for environments.", within="[1, inf)")
    time: str = setting("24:00:00", "Time limit (h:m:s), after which the job is requeued and resumes.")
    save_secs: int = setting(120, "Seconds before the limit at which training saves.", within="[10, 65535]")
    seeds: str = setting("", "Seeds, a run for each: 1-5 or 1,4; 1-5%2: two at a time. Folders: EXPERIMENT_seed1, ...")
    sbatch: str = setting("", "Other options of sbatch, such as '--partition=gpu --account=mine --mem=64G'.")
    dry_run: bool = setting(False, "Show the job without submitting it.")


@dataclasses.dataclass(frozen=True)
class ServerConfig:
    """The LLM server that the job starts."""

    server: str = setting(
        "none", "LLM server of the job: none, on a separate node, or on a GPU beside training.",
        choices=tuple(TEMPLATES),
    )  # fmt: skip
    server_command: str = setting(
        "",
        "Command that starts the server, with $MODEL (of --llm_model) and $PORT. With --server node it must listen on "
        "all interfaces. Empty: vllm serve.",
    )
    server_gpus: int = setting(1, "GPUs of the server.")
    server_cpus: int = setting(8, "CPU cores of the server.", within="[1, inf)")


@dataclasses.dataclass(frozen=True)
class Submission:
    """Settings of launch.submit."""

    job: JobConfig = JobConfig()
    server: ServerConfig = ServerConfig()


def main(argv: Sequence[str] | None = None, shows_next: bool = True) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code.

    Args:
        argv: command line without the program's name.
        shows_next: prints the commands that come next.
    """
    words, training = split_words(argv)
    check, run = functools.partial(check_job, words, training), functools.partial(_run, training, shows_next)
    return run_brief_program("submit", words, Submission(), check, run)


def check_job(words: Sequence[str], training: Sequence[str], program: Submission) -> None:
    """Raises UserError for a bad job. `words`: the flags that give `program`; `training`: those of launch.train."""
    check_values(program)
    if sum(re.match("--?sbatch(=|$)", word) is not None for word in words) > 1:
        raise UserError("--sbatch: give it once, with all options in it; only the last one would hold")
    job, server = program.job, program.server
    if not training:
        raise UserError("add the flags of launch.train: python -m launch.submit --time 12:00:00 -- --config NAME ...")
    if job.seeds and any(re.match("--?resume(=|$)", word) for word in training):
        raise UserError("--seeds: begins a run for each seed, and --resume goes on with one; give one or the other")
    config = flags.parse(training)
    flags.check(config)
    if not re.fullmatch(TIMES, job.time):
        raise UserError(f"--time {job.time}: must be in a format of Slurm's, such as 12:00:00 or 2-00 (days-hours)")
    # Outside of jobs, launch/job.sh has the flags checked as those of a job without an end.
    if (_secs(job.time) or not job.dry_run) and config.run.train_for_seconds != Config().run.train_for_seconds:
        raise UserError("--train_for_seconds: starts again from 0 at each start of a job; give --train_for_env_steps")
    if 0 < _secs(job.time) <= job.save_secs:
        raise UserError(f"--save_secs {job.save_secs}: must be below --time {job.time}, or nothing is trained")
    if not re.fullmatch(f"({SEEDS})?", job.seeds):
        raise UserError(f"--seeds {job.seeds}: must be in the format of sbatch's --array, such as 1-5 or 1,4")
    if job.seeds and config.run.seed != Config().run.seed:
        raise UserError("--seeds and --seed: give one or the other")
    if job.seeds and server.server == "node":
        raise UserError("--seeds: Slurm has no arrays of heterogeneous jobs; use --server beside, or submit each seed")
    if job.nodes > 1 and server.server == "beside":
        raise UserError(f"--nodes {job.nodes} --server beside: is for one node; use --server node")
    if server.server != "none" and config.annotation.llm_server_addr:
        raise UserError(f"--server {server.server}: starts a server, and --llm_server_addr names one; leave one out")
    if server.server == "none" and server.server_command:
        raise UserError("--server_command: needs --server node or beside")
    try:
        wrong = [word for word in shlex.split(job.sbatch) if not word.startswith("--")]
    except ValueError as error:
        raise UserError(f"--sbatch {job.sbatch}: {error}") from None
    if wrong:
        raise UserError(f"--sbatch: {wrong[0]!r} is no option; write --name=value")
    # --device cpu sets the variable.
    per_node = 1 if os.environ.get("JAX_PLATFORMS") == "cpu" else max(1, job.gpus_per_node)
    check_batch_size(config.learner, job.nodes * (config.devices.learner_devices or per_node))


def _secs(time: str) -> int:
    """Returns the seconds of a time in one of TIMES; 0: no limit."""
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    hours, minutes, secs, *_ = [*([0] if not dash and len(parts) < 3 else []), *parts, 0, 0]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs


def _run(training: Sequence[str], shows_next: bool, program: Submission) -> int:
    config = flags.parse(training)
    text = job_script(program, training, config)
    if not program.job.dry_run and not shutil.which("sbatch"):
        raise UserError("there is no sbatch on this machine; submit from a Slurm cluster, or add --dry_run")
    print(text, flush=True)
    needs_judge = any(not annotation.llm_server_addr for annotation, _ in questions(config))
    if needs_judge and program.server.server == "none":
        print("warning: labels will come from the rule-based judge, not from an LLM: add --server", file=sys.stderr)
    if program.job.dry_run:
        return 0
    # Inside another job, the new one would inherit that job's id, array task and restart count. sbatch's variables
    # stay.
    environment = {
        name: value for name, value in os.environ.items() if not re.match("SLURM_(?!(CONF|CLUSTERS|JWT)$)", name)
    }
    done = subprocess.run(["sbatch"], input=text, text=True, capture_output=True, env=environment)
    if done.returncode:
        raise UserError(f"sbatch refused the job: {done.stderr}")
    print(done.stdout.strip())
    if shows_next:
        show(command("ls", ListConfig(), train_dir=config.run.train_dir))
    return 0


def job_script(program: Submission, training: Sequence[str], config: Config) -> str:
    """Fills in the template of launch/slurm, for sbatch. `training`: the flags of `config`."""
    template = (LAUNCH / "slurm" / TEMPLATES[program.server.server]).read_text(encoding="utf-8")
    header, body = template[: template.rindex("source ")], template[template.rindex("source ") :]
    header = "".join(line for line in header.splitlines(True) if not line.startswith("# "))
    parts = zip(header.split(HETJOB), _options(program, config.run.experiment), strict=True)
    variables = _variables(program, training, config)
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in variables.items()]
    filled = HETJOB.join(_with_options(part, options) for part, options in parts)
    return filled + "".join(lines) + body.replace('"$@"', shlex.join(training)).rstrip()


def _options(program: Submission, name: str) -> list[list[str]]:
    """Returns sbatch's options for each component of the job."""
    job, server = program.job, program.server
    common = [f"--job-name={name}", f"--signal=B:USR1@{job.save_secs}"]
    common += [f"--array={job.seeds}"] if job.seeds else []
    cpus, gpus = job.cpus_per_node, job.gpus_per_node
    if server.server == "node":
        parts = [_resources(1, server.server_cpus, server.server_gpus), _resources(job.nodes, cpus, gpus)]
    elif server.server == "beside":
        parts = [_resources(1, cpus + server.server_cpus, gpus + server.server_gpus)]
    else:
        parts = [_resources(job.nodes, cpus, gpus)]
    parts[0] = common + parts[0]
    return [[*part, f"--time={job.time}", *shlex.split(job.sbatch)] for part in parts]


def _resources(num_nodes: int, num_cpus: int, num_gpus: int) -> list[str]:
    gpus = f"gpu:{num_gpus}" if num_gpus else "none"
    return [f"--nodes={num_nodes}", f"--cpus-per-task={num_cpus}", f"--gres={gpus}"]


def _variables(program: Submission, training: Sequence[str], config: Config) -> dict[str, str]:
    """Returns the variables of launch/job.sh."""
    model = config.annotation.llm_model
    server, itself = program.server, with_training(command("submit", Submission(), **values_of(program)), training)
    values = {"LAUNCH": str(LAUNCH), "PYTHON": sys.executable, STARTED_BY: itself}
    if program.job.seeds:
        values["ONI_EXPERIMENT"] = config.run.experiment  # a job's name may be another, and of several arrays
    if server.server != "none":
        values["NUM_SERVER_GPUS"] = str(server.server_gpus)
        if model != Config().annotation.llm_model or any(re.match("--?llm[_-]model(=|$)", word) for word in training):
            values["MODEL"] = model
        if server.server_command:
            values["SERVER_COMMAND"] = server.server_command
    return values


def _with_options(header: str, options: Sequence[str]) -> str:
    """Returns a component's #SBATCH lines, with options of the same name replaced and others appended."""
    lines = {_name(line.removeprefix("#SBATCH ")): line for line in header.splitlines(True)}
    return "".join({**lines, **{_name(option): f"#SBATCH {shlex.quote(option)}\n" for option in options}}.values())


def _name(option: str) -> str:
    return option.partition("=")[0].strip()


if __name__ == "__main__":
    sys.exit(main())
