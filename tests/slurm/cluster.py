"""A Slurm cluster for a test: every daemon on this machine, as this user, with nothing outside a folder."""

import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from typing import IO

from oni_jax.host.runtime import die_with_parent

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
NUM_NODES, CPUS, GPUS = 3, 4, 2  # numbers of each node, none of them real
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")

# Nodes are named by addresses of this machine, since a node's name has to resolve.
CONFIG = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1,defer
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=5
SlurmdTimeout=30
GresTypes=gpu
NodeName=127.0.0.[1-{num_nodes}] NodeHostname={host} NodeAddr=127.0.0.[1-{num_nodes}] Port=[{first}-{last}] \
CPUs={cpus} Gres=gpu:{gpus}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=ALL Default=YES PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL PriorityTier=2
"""


def missing() -> list[str]:
    """Programs that the cluster needs and this machine lacks."""
    return [name for name in PROGRAMS if not shutil.which(name)]


class Cluster:
    """Runs while it is entered. `environment` has what Slurm's commands need."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen] = []
        self._log: IO[bytes] = open(folder / "daemons.log", "ab")

    def __enter__(self) -> "Cluster":
        self._write_config()
        key, munge_socket = self.folder / "munge.key", self.folder / "munge.socket"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        places = {"socket": munge_socket, "key-file": key, "pid-file": self.folder / "munged.pid"}
        places |= {"log-file": self.folder / "munged.log", "seed-file": self.folder / "munged.seed"}
        try:
            self._start("munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in places.items()))
            self.wait("munged", munge_socket.exists)
            self._start("slurmctld", "-D", "-c")
            for node in self.nodes:
                self._start("slurmd", "-D", "-N", node)
            self.wait("Slurm", self._is_idle)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel_jobs()
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._log.close()

    @property
    def nodes(self) -> list[str]:
        return [f"127.0.0.{number}" for number in range(1, NUM_NODES + 1)]

    def cancel_jobs(self) -> None:
        """And waits until they have ended, though not for long."""
        subprocess.run(["scancel", "--user", str(os.getuid())], env=self.environment, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.run("squeue", "--noheader", may_fail=True):
            time.sleep(0.2)

    def run(self, *words: str, may_fail: bool = False) -> str:
        """Returns a command's output. Raises CalledProcessError unless it `may_fail`."""
        done = subprocess.run(words, env=self.environment, stdout=subprocess.PIPE, text=True, check=not may_fail)
        return done.stdout

    def state(self, job: str) -> dict[str, str]:
        """Returns Slurm's fields of a job, by its names: JobState, Restarts, ExitCode, StdOut."""
        text = self.run("scontrol", "show", "job", "--oneliner", job).splitlines()[0]
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait_for_end(self, job: str, timeout_secs: float = 600.0) -> dict[str, str]:
        """The state in which it ended; a job that was requeued has not."""
        self.wait(f"job {job}", lambda: self.state(job)["JobState"] in ENDED, timeout_secs)
        return self.state(job)

    def wait(self, what: str, condition: Callable[[], object], timeout_secs: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_secs
        while not condition():
            assert all(daemon.poll() is None for daemon in self._daemons), self._told(f"{what}: a daemon ended")
            assert time.monotonic() < deadline, self._told(f"{what}: waited too long")
            time.sleep(0.2)

    def _start(self, *words: str) -> None:
        daemon = subprocess.Popen(
            words, env=self.environment, stdout=self._log, stderr=self._log, preexec_fn=die_with_parent
        )
        self._daemons.append(daemon)

    def _is_idle(self) -> bool:
        return (
            self.run("sinfo", "--noheader", "--partition=all", "--format=%T %D", may_fail=True) == f"idle {NUM_NODES}\n"
        )

    def _told(self, what: str) -> str:
        return f"{what}\n{(self.folder / 'daemons.log').read_text(errors='replace')[-3000:]}"

    def _write_config(self) -> None:
        first = _free_ports(NUM_NODES + 1)
        text = CONFIG.format(
            host=socket.gethostname().partition(".")[0],
            user=pwd.getpwuid(os.getuid()).pw_name,
            folder=self.folder,
            controller=first,
            first=first + 1,
            last=first + NUM_NODES,
            num_nodes=NUM_NODES,
            cpus=CPUS,
            gpus=GPUS,
        )
        (self.folder / "slurm.conf").write_text(text)
        for number in range(GPUS):
            (self.folder / f"gpu{number}").symlink_to("/dev/null")  # a device of some kind is all that Slurm asks for
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-{GPUS - 1}]\n")
        for name in ("state", *(f"spool.{node}" for node in self.nodes)):
            (self.folder / name).mkdir()


def _free_ports(num: int) -> int:
    """The first of `num` ports in a row that nothing listens at."""
    for first in range(17000, 32000, num):
        try:
            for port in range(first, first + num):
                with socket.socket() as probe:
                    probe.bind(("", port))
        except OSError:
            continue
        return first
    raise OSError("no free ports")
