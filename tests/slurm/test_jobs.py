"""Jobs of launch.submit, and launch/slurm/train.sbatch by hand, on a real Slurm."""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import psutil
import pytest

from tests.slurm.cluster import Cluster
from tests.support.launched import rows
from tests.support.processes import RETRIEVAL, ROOT, SMALL, summary

pytestmark = pytest.mark.slurm

NETHACK = [*SMALL, *RETRIEVAL, "--num_workers=1", "--device=cpu"]
CATCH = (
    "--root_env=Catch-v0 --llm_reward_type=none --encoder_custom=mlp_encoder --num_workers=1 --num_envs_per_worker=4 "
    "--batch_size=256 --hidden_size=32 --log_every_sec=1 --device=cpu"
).split()
JUDGE = f"{shlex.quote(sys.executable)} -m launch.judge --port $PORT"


class Jobs:
    """Jobs that are submitted from a folder, in which they run."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path):
        self.cluster, self.folder = cluster, folder
        self.environment = {**cluster.environment, "PYTHONPATH": str(ROOT), "LAUNCH": str(ROOT / "launch")}

    def run(self, *words: str, **environment: str) -> str:
        """Runs what submits a job; the job's number."""
        environment = {**self.environment, **environment}
        done = subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return re.findall(r"^(?:Submitted batch job )?(\d+)$", done.stdout, re.MULTILINE)[-1]

    def submit(self, job: str, *training: str) -> str:
        small = ["--cpus_per_node=1", "--server_cpus=1", "--gpus_per_node=1", "--time=30"]
        return self.run(sys.executable, "-m", "launch.submit", *small, *shlex.split(job), "--", *training)

    def output(self, job: str) -> str:
        path = self.folder / f"slurm-{job}.out"
        return path.read_text() if path.exists() else ""

    def wait_for_output(self, job: str, text: str) -> None:
        self.cluster.wait(f"{text!r} of job {job}", lambda: text in self.output(job), 600)

    def wait_for_rows(self, job: str, experiment: str, num: int) -> None:
        folder = self.folder / "train_dir" / experiment
        self.cluster.wait(f"rows of job {job}", lambda: len(rows(folder)) >= num, 600)


@pytest.fixture
def jobs(cluster, tmp_path):
    yield Jobs(cluster, tmp_path)
    cluster.cancel_jobs()


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_server_on_another_node_requeue_and_resume(cluster, jobs, num_nodes):
    server = f"{JUDGE} --host $SLURMD_NODENAME"
    training = [*NETHACK, "--experiment=score", "--train_for_env_steps=3000"]
    job = jobs.submit(f"--nodes={num_nodes} --server=node --server_command={shlex.quote(server)}", *training)
    jobs.wait_for_rows(job, "score", 2)
    components = cluster.run("squeue", "--noheader", "--format=%N", "--jobs", job).split()
    assert len(components) == len(set(components)) == 2
    cluster.run("scancel", "--batch", "--signal=USR1", job)
    jobs.wait_for_output(job, "resumed at ")
    state = cluster.wait_for_end(job)
    assert (state["JobState"], state["Restarts"]) == ("COMPLETED", "1"), jobs.output(job)
    output = jobs.output(job)
    assert output.count("the LLM server answers") == 2 and "SIGUSR1: saving and leaving" in output
    resumed_at = int(re.findall(r"resumed at ([\d,]+)", output)[0].replace(",", ""))
    folder = jobs.folder / "train_dir" / "score"
    assert 256 <= resumed_at < 3000 <= summary(folder)["env_steps"]
    assert json.loads((folder / "config.json").read_text())["annotation"]["llm_server_addr"].startswith("127.0.0.")
    assert rows(folder)[-1]["labels_held"] > 0


def test_the_limit_itself_requeues(cluster, jobs):
    job = jobs.submit("--time=2 --save_secs=80", *CATCH, "--experiment=limited")
    jobs.wait_for_output(job, "resumed at ")
    assert int(cluster.state(job)["Restarts"]) >= 1 and "back into the queue" in jobs.output(job)


def test_a_run_a_seed(cluster, jobs):
    job = jobs.submit("--seeds=3,5", *CATCH, "--experiment=many", "--train_for_env_steps=2000")
    for seed in (3, 5):
        assert cluster.wait_for_end(f"{job}_{seed}")["JobState"] == "COMPLETED"
        folder = jobs.folder / "train_dir" / f"many_seed{seed}"
        assert json.loads((folder / "config.json").read_text())["run"]["seed"] == seed
        assert summary(folder)["env_steps"] >= 2000
    assert len(os.listdir(jobs.folder / "train_dir")) == 2


def test_a_run_of_an_array_goes_back_into_the_queue_alone(cluster, jobs):
    python = stand_in(jobs, "trap 'exit 0' USR1; echo ready; while true; do sleep 0.1; done")
    options = ["--parsable", "--array=3,5", "--cpus-per-task=1", "--gres=none"]
    array = jobs.run("sbatch", *options, str(ROOT / "launch/slurm/train.sbatch"), PYTHON=python)
    tasks = {number: f"{array}_{number}" for number in (3, 5)}
    for task in tasks.values():
        job = cluster.state(task)["JobId"]
        jobs.wait_for_output(job, "ready")
    (same,) = [task for task in tasks.values() if cluster.state(task)["JobId"] == array]
    (other,) = set(tasks.values()) - {same}
    cluster.run("scancel", "--batch", "--signal=USR1", same)
    cluster.wait("its second start", lambda: jobs.output(array).count("ready") == 2)
    assert (cluster.state(same)["Restarts"], cluster.state(other)["Restarts"]) == ("1", "0")
    assert cluster.state(other)["JobState"] == "RUNNING"


def test_a_server_that_never_answers(cluster, jobs):
    job = jobs.submit("--server=node --server_command='echo no such model; exit 3'", *NETHACK)
    state = cluster.wait_for_end(job)
    assert (state["JobState"], state["ExitCode"]) == ("FAILED", "1:0")
    output = jobs.output(job)
    assert "ended before it answered (exit code 3)" in output and "no such model\n" in output
    assert not (jobs.folder / "train_dir").exists()


def test_a_server_that_dies_beside_training(cluster, jobs):
    tells_gpus = f"echo GPUs $CUDA_VISIBLE_DEVICES; echo $$ > server_pid; exec {JUDGE}"
    job = jobs.submit(f"--server=beside --server_command={shlex.quote(tells_gpus)}", *NETHACK, "--experiment=beside")
    jobs.wait_for_rows(job, "beside", 1)
    server, training = (jobs.folder / "server_pid").read_text(), "--experiment=beside"
    gpus = {
        found.info["environ"].get("CUDA_VISIBLE_DEVICES")
        for found in psutil.process_iter(["cmdline", "environ"])  # a process that has just ended has neither
        if training in (words := found.info["cmdline"] or []) and words[1:3] == ["-m", "launch.train"]
    }
    assert gpus == {"1"}
    os.kill(int(server), signal.SIGKILL)
    state = cluster.wait_for_end(job)
    assert (state["JobState"], state["ExitCode"], state["Restarts"]) == ("FAILED", "1:0", "0")
    output = jobs.output(job)
    assert "ended before training, which now saves and ends (signal KILL)" in output and "GPUs 0\n" in output
    assert "SIGUSR1: saving and leaving" in output


def stand_in(jobs: Jobs, behaviour: str) -> str:
    """For Python: tells its place."""
    path = jobs.folder / "python"
    place = "process $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME, GPUs $CUDA_VISIBLE_DEVICES"
    checks = f'[ "$2" = launch.train ] || exec {shlex.quote(sys.executable)} "$@"'  # the flags: as they are
    path.write_text(f"#!/bin/bash\n{checks}\necho {place}\n{behaviour}\n")
    path.chmod(0o755)
    return str(path)


def test_a_process_a_node(cluster, jobs):
    """The second fails, and the others end with it."""
    python = stand_in(jobs, "[ $SLURM_PROCID = 1 ] && { sleep 2; exit 7; }; sleep 600")
    options = ["--parsable", "--nodes=3", "--cpus-per-task=2", "--gres=gpu:2"]
    job = jobs.run("sbatch", *options, str(ROOT / "launch/slurm/train.sbatch"), "--seed=1", PYTHON=python)
    assert cluster.wait_for_end(job)["JobState"] == "FAILED"
    told = [line for line in jobs.output(job).splitlines() if line.startswith("process")]
    assert sorted(told) == [
        f"process {number} of 3 on {node}, GPUs 0,1" for number, node in enumerate(cluster.nodes)
    ], jobs.output(job)


@pytest.mark.parametrize("dies, restarts", [("kill -KILL $$", "1"), ("exit 7", "0")])
def test_a_killed_task_sends_the_job_back_into_the_queue(cluster, jobs, dies, restarts):
    """The others end by themselves, as training does when a process of the job is gone; the second start is done."""
    others = "trap 'exit 1' TERM; while true; do sleep 0.1; done"
    first = f"[ $SLURM_PROCID = 1 ] && {{ sleep 2; {dies}; }}; {others}"
    python = stand_in(jobs, f"[ ${{SLURM_RESTART_COUNT:-0}} = 0 ] || {{ echo again; exit 0; }}; {first}")
    options = ["--parsable", "--nodes=2", "--cpus-per-task=1", "--gres=none"]
    job = jobs.run("sbatch", *options, str(ROOT / "launch/slurm/train.sbatch"), "--seed=1", PYTHON=python)
    state = cluster.wait_for_end(job)
    ended = "COMPLETED" if restarts == "1" else "FAILED"
    assert (state["JobState"], state["Restarts"]) == (ended, restarts), jobs.output(job)
    assert ("again" in jobs.output(job)) == (restarts == "1")


def test_a_run_one_of_whose_tasks_is_killed_goes_on_from_its_checkpoint(cluster, jobs):
    training = [*CATCH, "--experiment=killed", "--train_for_env_steps=40000", "--save_every_sec=1"]
    job = jobs.submit("--nodes=2", *training)
    jobs.wait_for_rows(job, "killed", 4)
    tasks = [process for process in psutil.process_iter(["cmdline", "environ"]) if is_task(process, job, "1")]
    tasks[0].kill()
    state = cluster.wait_for_end(job)
    output = jobs.output(job)
    assert (state["JobState"], state["Restarts"]) == ("COMPLETED", "1"), output
    assert "a task was killed" in output and "resumed at " in output
    assert summary(jobs.folder / "train_dir" / "killed")["env_steps"] >= 40000


def is_task(process: psutil.Process, job: str, number: str) -> bool:
    """Returns whether a process is training's of this number among the job's tasks."""
    environment, words = process.info["environ"] or {}, process.info["cmdline"] or []
    of_job = environment.get("SLURM_JOB_ID") == job and environment.get("SLURM_PROCID") == number
    return of_job and words[1:3] == ["-m", "launch.train"]


URGENT = ["--parsable", "--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=4", "--partition=urgent"]


def test_a_preempted_heterogeneous_job_saves_and_goes_on(cluster, jobs):
    """The server, which gets TERM too, ends before training has saved."""
    behaviour = "trap 'sleep 4; echo saved; exit 0' TERM; echo ready; while true; do sleep 0.1; done"
    environment = {
        "PYTHON": stand_in(jobs, behaviour),
        "SERVER_COMMAND": f"{shlex.quote(sys.executable)} -m http.server $PORT",
    }
    options = ["--parsable", "--cpus-per-task=1", "--gres=none"]
    job = jobs.run(
        "sbatch", *options, str(ROOT / "launch/slurm/train_with_server.sbatch"), "--llm_reward_type=none", **environment
    )
    jobs.wait_for_output(job, "ready")
    assert cluster.wait_for_end(jobs.run("sbatch", *URGENT, "--wrap=sleep 1"))["JobState"] == "COMPLETED"
    cluster.wait("its second start", lambda: jobs.output(job).count("ready") == 2)
    state, output = cluster.state(job), jobs.output(job)
    assert (state["Restarts"], state["PreemptTime"], output.count("saved")) == ("1", "None", 1), output


def test_a_preempted_job_saves_and_goes_on(cluster, jobs):
    behaviour = "trap 'echo saved; exit 0' TERM; echo ready; while true; do sleep 0.1; done"
    options = ["--parsable", "--nodes=3", "--cpus-per-task=4", "--gres=none"]
    script = str(ROOT / "launch/slurm/train.sbatch")
    job = jobs.run("sbatch", *options, script, "--seed=1", PYTHON=stand_in(jobs, behaviour))
    cluster.wait("three processes", lambda: jobs.output(job).count("ready") == 3)
    assert cluster.wait_for_end(jobs.run("sbatch", *URGENT, "--wrap=sleep 1"))["JobState"] == "COMPLETED"
    cluster.wait("three more", lambda: jobs.output(job).count("ready") == 6)
    state = cluster.state(job)
    assert (state["Restarts"], state["PreemptTime"]) == ("1", "None") and jobs.output(job).count("saved") == 3
