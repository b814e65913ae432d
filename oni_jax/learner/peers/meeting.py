"""Start and end of a process among the processes of a run."""

import contextlib
import functools
import os
import re
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

import jax

from oni_jax.host.reporting import report
from oni_jax.host.runtime import BackgroundThread, StopRequest, ending
from oni_jax.learner.peers.peers import SINGLE_PROCESS, PeerLost, Peers, SingleProcess, lost, one_line
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import DevicesConfig, num_processes, slurm_number

MEETING_SECS = 300  # time-out of processes waiting for each other at the start
HEARTBEAT_SECS = 30  # heartbeat time-out, after which a process counts as dead, and the others are ended


@contextlib.contextmanager
def joined(devices: DevicesConfig, stop: StopRequest) -> Iterator["SingleProcess | Peers"]:
    """Connects to the other processes, if there are any, and yields them; disconnects after the body.

    If there are others, it exits here after an error, or a stop request before they connected: otherwise JAX would wait
    for them, and they for this process.
    """
    if num_processes(devices) == 1:
        if devices.coordinator_address:
            raise UserError("--coordinator_address: outside of Slurm, give --num_processes and --process_id as well")
        yield SINGLE_PROCESS
        return
    try:
        _meet(devices, in_slurm=devices.num_processes == 0, stop=stop)
        yield Peers()
    except BaseException as error:
        _leave(error)
    jax.distributed.shutdown()


def _meet(devices: DevicesConfig, in_slurm: bool, stop: StopRequest) -> None:
    """Waits until all processes have connected. Raises UserError after the time-out, or if they can't connect."""
    _check_host_name(devices.coordinator_address.rpartition(":")[0] or _slurm_host())
    jax.config.update("jax_enable_preemption_service", False)  # it would handle SIGTERM instead of us
    options: dict[str, Any] = (
        {} if in_slurm else {"num_processes": devices.num_processes, "process_id": devices.process_id}
    )
    # JAX's default is one accelerator for each of Slurm's tasks; an empty list selects all.
    options |= {"local_device_ids": [], "heartbeat_timeout_seconds": HEARTBEAT_SECS}
    # A thread, since it blocks signal handlers; and JAX aborts the process at its time-out, so ours comes first.
    options["initialization_timeout"] = 2 * MEETING_SECS
    initialize = functools.partial(jax.distributed.initialize, devices.coordinator_address or None, **options)
    meeting, start, logged = BackgroundThread("meeting", initialize), time.monotonic(), False
    meeting.start()
    where = f" at {devices.coordinator_address}" if devices.coordinator_address else ""
    while meeting.is_alive():
        meeting.join(0.2)
        if stop and meeting.is_alive():
            report(f"{stop.reason}: leaving")
            os._exit(0)
        waited_secs = time.monotonic() - start
        if waited_secs > MEETING_SECS:
            raise UserError(
                f"--coordinator_address: the processes of this run did not meet{where} in {MEETING_SECS} s: start "
                "each of them, with the same --num_processes and the same address, which all of them can reach"
            )
        if waited_secs > 3 and not logged:
            logged = True
            alone = "; --num_processes 1 runs this one alone" if in_slurm else ""
            report(f"waiting for the other processes of this run{where}{alone}")
    try:
        meeting.check()
    except (RuntimeError, ValueError, KeyError) as error:
        reason = one_line(error)
        if in_slurm:
            reason += (
                "; where variables of Slurm are missing, give --coordinator_address, --num_processes, --process_id"
            )
        raise UserError(f"--coordinator_address: the processes of this run did not meet ({reason})") from None


def _check_host_name(coordinator: str) -> None:
    """Raises UserError if this host's name resolves to a loopback address, though other hosts connect to it.

    Debian's /etc/hosts gives it 127.0.1.1. JAX sends the address of that name to the other processes.
    """
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except (OSError, UnicodeError):  # JAX will report it
        return
    on_one_host = not coordinator or re.fullmatch(r"localhost|127\..+|\[?::1\]?", coordinator)
    if address.startswith("127.") and not on_one_host:
        raise UserError(
            f"this host's name, {name}, resolves to {address}, at which processes of other hosts can't reach it: "
            "give it its network's address in /etc/hosts (those of one host can meet at 127.0.0.1)"
        )


def _slurm_host() -> str:
    """Returns the host on which srun started the job step, if that has several nodes, else ""."""
    several = slurm_number("SLURM_STEP_NUM_NODES") > 1
    return os.environ.get("SLURM_SRUN_COMM_HOST", "") if several else ""


def _leave(error: BaseException) -> None:
    if isinstance(error, jax.errors.JaxRuntimeError) or (isinstance(error, ValueError) and "Gloo" in str(error)):
        traceback.print_exception(error)  # the cause may be in this process
        error = lost(error)
    code, line = (1, f"error: {error}") if isinstance(error, PeerLost) else ending(error)
    if line:
        report(line, to_stderr=True)
    else:
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
