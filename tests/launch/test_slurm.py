"""The example job script, run with stand-ins for Slurm's and the server's commands."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "launch" / "slurm" / "train_with_server.sbatch"
STAND_INS = {
    # Runs a step in a process group of its own, all of which gets USR1.
    "srun": """while [[ $1 == --* ]]; do shift; done
setsid "$@" & step=$!
echo $step >> steps
trap "kill -USR1 -- -$step" USR1
wait $step; code=$?
while kill -0 $step 2> /dev/null; do wait $step; code=$?; done
exit $code""",
    "scontrol": 'if [ $1 = show ]; then echo node0; echo node1; else echo "$@" >> scontrol.log; fi',
    "curl": "[ -e serving ]",
    "serve": "touch serving; exec sleep 60",
    # As training does: saves on USR1.
    "python": 'echo "$@" > trained; trap "echo saved >> trained; exit 0" USR1; eval "$BEHAVIOUR"',
}


@pytest.fixture
def job(tmp_path):
    """Starts the script in an empty folder; `job(behaviour)` gives the process."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, body in STAND_INS.items():
        (commands / name).write_text(f"#!/bin/bash\n{body}\n")
        (commands / name).chmod(0o755)
    started = []

    def start(behaviour: str, server: str = "serve") -> subprocess.Popen:
        env = dict(os.environ, PATH=f"{commands}:{os.environ['PATH']}", BEHAVIOUR=behaviour, PYTHON="python")
        env |= {"SERVER_COMMAND": server, "MODEL": "m", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST_HET_GROUP_0": "x"}
        words = ["bash", str(SCRIPT), "--seed", "3"]
        process = subprocess.Popen(words, cwd=tmp_path, env=env, start_new_session=True, stdout=subprocess.DEVNULL)
        started.append(process)
        return process

    yield start
    steps = tmp_path / "steps"
    groups = [process.pid for process in started] + [int(pid) for pid in steps.read_text().split()]
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def wait_for(path: pathlib.Path) -> None:
    deadline = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


def test_trains_against_the_server_and_ends_with_its_code(job, tmp_path):
    assert job("exit 5").wait(20) == 5
    words = (tmp_path / "trained").read_text().split()
    assert words == "-m launch.train --llm_server_addr node0:9001 --llm_model m --seed 3".split()
    assert not (tmp_path / "scontrol.log").exists()


def test_usr1_saves_and_goes_back_into_the_queue(job, tmp_path):
    process = job("while true; do sleep 0.1; done")
    wait_for(tmp_path / "trained")
    time.sleep(0.5)  # until the script has set its trap
    os.kill(process.pid, signal.SIGUSR1)
    assert process.wait(20) == 0
    assert (tmp_path / "trained").read_text().splitlines()[-1] == "saved"
    assert (tmp_path / "scontrol.log").read_text() == "requeue 7\n"


def test_a_server_that_dies_ends_the_job(job, tmp_path):
    assert job("exit 0", server="false").wait(20) == 1
    assert not (tmp_path / "trained").exists()
