"""The job scripts of launch/, run with stand-ins for Slurm's, the server's and training's commands."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "launch"
COMMANDS = {
    # Runs a step in a separate process group, all of which gets USR1. TERM kills it, as from the real one.
    "srun": """came= step=; while [[ $1 == --* ]]; do echo "$1" >> srun.log; shift; done
trap 'came=yes; kill -USR1 -- "-$step"' USR1
trap 'kill -KILL -- "-$step"' TERM
setsid "$@" & step=$!
echo $step >> groups
[ -z "$came" ] || kill -USR1 -- "-$step"
while kill -0 $step 2> /dev/null; do wait $step; done
wait $step""",
    "scontrol": """case "$1 $2" in
"show hostnames") echo node0; echo node1;;
"show job") [ "$3" = "$JOB" ] && echo "JobId=$3 PreemptTime=${PREEMPTED:-None}";;
*) echo "$@" >> scontrol.log;;
esac""",
    "curl": "[ -e serving ] && echo 200 || echo 000",
    "serve": 'echo $$ > serving; echo "$MODEL $CUDA_VISIBLE_DEVICES" > served; exec sleep 60',
    "vllm": 'echo "$@" > vllm_words; exec serve',
    "sleep": "exec /bin/sleep $([ $1 = 1 ] && echo 0.1 || echo $1)",  # the scripts' pauses
    # As training does: saves on USR1 and on TERM.
    "python": """if [ "$2" = launch.submit ]; then
    echo "$@" > checked; [ -z "$REAL" ] || exec "$REAL" "$@"; echo shown; exit ${REFUSED:-0}
fi
echo "$CUDA_VISIBLE_DEVICES" > gpus
echo "$ONI_STARTED_BY" > started_by
trap "echo saved >> trained; exit 0" USR1 TERM
echo "$@" > trained; eval "$BEHAVIOUR" """,
}
GOES_ON = "while true; do sleep 0.1; done"  # training does this


class Scripts:
    """Starts scripts in an empty folder; ends what they leave when it is left."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self._started: list[subprocess.Popen] = []
        (folder / "bin").mkdir()
        for name, body in COMMANDS.items():
            path = folder / "bin" / name
            path.write_text(f"#!/bin/bash\n{body}\n")
            path.chmod(0o755)

    def start(self, script: str, behaviour: str = GOES_ON, *words: str, **environment: str) -> subprocess.Popen:
        env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        env |= {"PATH": f"{self.folder / 'bin'}:{env['PATH']}", "LAUNCH": str(LAUNCH), "PYTHON": "python"}
        env |= {"BEHAVIOUR": behaviour, "SERVER_COMMAND": "serve", "MODEL": "m", "CUDA_VISIBLE_DEVICES": "4,5"}
        if script.endswith(".sbatch"):
            env |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "score", "SLURM_JOB_NODELIST_HET_GROUP_0": "node[0-1]"}
            env |= {"SLURM_CPUS_PER_TASK": "3", "JOB": "7"}
            env |= {"SLURM_CPUS_PER_TASK_HET_GROUP_0": "1", "SLURM_CPUS_PER_TASK_HET_GROUP_1": "2"}
        with open(self.folder / "output", "ab") as output:
            process = subprocess.Popen(
                ["bash", str(LAUNCH / script), *(words or ("--seed", "3"))],
                cwd=self.folder, env=env | environment, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._started.append(process)
        return process

    def wait_for(self, name: str) -> None:
        """Until there is a file of this name, with something in it."""
        deadline = time.monotonic() + 30
        while not self.read(name):
            assert time.monotonic() < deadline, f"no {name}: {self.read('output')}"
            time.sleep(0.02)

    def read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        groups = [process.pid for process in self._started]
        for group in groups + [int(pid) for pid in (self.read("groups") + self.read("serving")).split()]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
