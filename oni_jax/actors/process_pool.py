"""The games stepped by processes of their own."""

import os
import selectors
import shutil
import tempfile
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from oni_jax.actors.group import MakeEnv
from oni_jax.actors.worker import ANSWER, COMMAND, run_worker
from oni_jax.buffers.ring import TrajectoryRing
from oni_jax.runtime import ChildError, start_child, stop_child

HANG_SECS = 60.0  # a step takes microseconds and a start a few seconds


class ProcessPool:
    """`num_workers` processes, each with an equal share of the ring's units."""

    def __init__(self, make_env: MakeEnv, ring: TrajectoryRing, num_workers: int):
        self._make_env, self._ring = make_env, ring
        per_worker = ring.shape.num_units // num_workers
        self._units = [range(i * per_worker, (i + 1) * per_worker) for i in range(num_workers)]
        self._children: list[tuple[BaseProcess, Connection]] = []
        self._connection_of: dict[int, Connection] = {}
        self._dispatched_at: dict[int, float] = {}
        self._checked_at = time.monotonic()
        self._scratch = tempfile.mkdtemp(prefix="oni_jax_")  # for the games' files, also those of a killed actor
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def start(self) -> None:
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        scratches = [os.path.join(self._scratch, f"actor-{index}") for index in range(len(self._units))]
        for scratch in scratches:
            os.mkdir(scratch)
        for index, (units, scratch) in enumerate(zip(self._units, scratches, strict=True)):
            child = start_child(
                f"actor-{index}",
                run_worker,
                self._make_env,
                self._ring,
                units,
                scratch,
                single_threaded=True,
                cleans_up=True,
            )
            self._children.append(child)
            self._selector.register(child[1], selectors.EVENT_READ, child)
            self._connection_of.update(dict.fromkeys(units, child[1]))

    def dispatch(self, unit: int, slot: int, t: int) -> None:
        self._dispatched_at[unit] = time.monotonic()
        try:
            self._connection_of[unit].send_bytes(COMMAND.pack(unit, slot, t))
        except OSError:
            pass  # it has died: `wait` reads its last words and raises

    def wait(self, timeout_secs: float) -> list[int]:
        ready = self._selector.select(timeout_secs)
        done = []
        for key, _ in ready:
            if key.data is None:
                os.read(self._wake_read, 4096)
            else:
                done.append(self._receive(*key.data))
        for unit in done:
            del self._dispatched_at[unit]
        now = time.monotonic()
        if now - self._checked_at > 1.0:
            self._checked_at = now
            self._check_hanging(now)
        return done

    def _receive(self, process: BaseProcess, connection: Connection) -> int:
        try:
            answer = connection.recv_bytes()
        except (EOFError, OSError):
            process.join(1.0)
            raise ChildError(f"{process.name} (pid {process.pid}) died, exit code {process.exitcode}") from None
        if len(answer) != ANSWER.size:
            raise ChildError(answer.decode(errors="replace"))
        return ANSWER.unpack(answer)[0]

    def _check_hanging(self, now: float) -> None:
        for unit, since in self._dispatched_at.items():
            if now - since > HANG_SECS:
                raise ChildError(f"the actor of unit {unit} has not answered for {HANG_SECS:.0f} s")

    def wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # it is awake already

    def close(self) -> None:
        for _, connection in self._children:
            connection.close()
        for process, connection in self._children:
            stop_child(process, connection)
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
