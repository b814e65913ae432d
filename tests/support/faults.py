"""Common part of the runs with injected faults: a judge that can be stopped and made to misbehave, an audit of the
label store, and samples of a run's resources."""

import contextlib
import json
import pathlib
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import psutil

from benchmarks.harness import ROOT_ENV
from benchmarks.training import memory_of
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.queries.choices import decode_label
from oni_jax.settings.fields import UserError
from tests.support.judge_faults import FAULTS
from tests.support.launched import Launched

SERVER_FAULTS = tuple(sorted(FAULTS))
# Faults with which some answers get through.
PARTIAL_FAULTS = ("extra_choices", "missing_choices", "same_index", "shuffled_choices")
WINDOW_FRACTION = 0.1  # fraction of the compared samples: the first and the last ones


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Server:
    """A judge of an environment at a fixed address, with a log of its answers. One process at a time."""

    def __init__(self, folder: pathlib.Path, root_env: str = ROOT_ENV):
        self._root_env = root_env
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._log = folder / "judge.jsonl"
        self._process: subprocess.Popen | None = None

    def start(self, fault: str = "") -> None:
        """Starts the judge and waits until it listens; with a fault, every answer has it."""
        words = [f"--port={self.port}", f"--log={self._log}", f"--root_env={self._root_env}"]
        words += [f"--fault={fault}", "--fault_rate=1"] if fault else []
        command = [sys.executable, "-u", "-m", "tests.support.judge_faults", *words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        if not self._process.stdout.readline():
            raise RuntimeError(f"the judge did not listen at {self.address}")

    def stop(self) -> None:
        """Kills the judge, if it runs."""
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def freeze(self) -> None:
        """Suspends the judge (SIGSTOP): its connections stay open, without answers."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def said(self) -> Iterator[tuple[tuple[bytes, ...], int]]:
        """Yields (item, label) of all that it judged, except answers that a fault suppressed."""
        with open(self._log, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    record = json.loads(line)
                except ValueError:  # killed while writing, and so before answering
                    continue
                if record["fault"] and record["fault"] not in PARTIAL_FAULTS:
                    continue
                captions = record["messages"] if "messages" in record else [record["message"]]
                yield tuple(caption.encode("latin-1") for caption in captions), record["label"]


def start_run(
    directory: str, server: Server, reward_type: str, *words: str, temporary: str | None = None
) -> tuple[Launched, pathlib.Path]:
    """Starts a training run labelled by the server. Returns it and its folder. `words`: more flags."""
    run = Launched(
        *("launch.train", f"--root_env={ROOT_ENV}", f"--train_dir={directory}", "--experiment=run"),
        *(f"--llm_reward_type={reward_type}", "--llm_reward_coeff=0.4", "--extrinsic_reward_coeff=0.1"),
        *(f"--llm_server_addr={server.address}", *words),
        temporary=temporary,
    )
    return run, pathlib.Path(directory) / "run"


def stored_labels(path: pathlib.Path) -> dict[tuple[bytes, ...], int]:
    """Reads every committed label of a store that a run may be writing to; {} before there is one."""
    if not path.exists():
        return {}
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10.0) as database:
        keys = database.execute("SELECT model, digest FROM prompts").fetchall()
    database.close()
    store = LabelStore(str(path))
    return {
        row.item: decode_label(row.answer or b"").label for model, digest in keys for row in store.all(model, digest)
    }


class LabelAudit:
    """An audit of a label store: committed labels must stay, and agree with the judge's log."""

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._committed: dict[tuple[bytes, ...], int] = {}

    def look(self) -> None:
        """Remembers the labels committed so far, unless the store can't be read yet."""
        with contextlib.suppress(sqlite3.OperationalError, UserError, OSError):
            self._committed = {**stored_labels(self._path), **self._committed}

    def result(self, server: Server) -> dict[str, int]:
        """Counts labels committed, lost since, changed since, and different from the judge's log."""
        now, said = stored_labels(self._path), dict(server.said())
        return {
            "committed": len(now),
            "lost": len(self._committed.keys() - now.keys()),
            "changed": sum(now.get(item, label) != label for item, label in self._committed.items()),
            "wrong": sum(said.get(item) != label for item, label in now.items()),
        }


class Sample(NamedTuple):
    """Resources at a moment. Memory in bytes. `all`: of the program with the processes that it started."""

    secs: float
    memory: int
    memory_all: int
    num_files: int
    num_files_all: int
    num_threads: int
    num_threads_all: int


def take_sample(pid: int, secs: float) -> Sample:
    process = psutil.Process(pid)
    main_counts = _counts(process)
    counts = [main_counts]
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it is ending
            counts.append(_counts(child))
    files, threads = (sum(column) for column in zip(*counts, strict=True))
    return Sample(secs, process.memory_info().rss, memory_of(pid), main_counts[0], files, main_counts[1], threads)


def _counts(process: psutil.Process) -> tuple[int, int]:
    """Returns the numbers of open files and of threads."""
    return process.num_fds(), process.num_threads()


def compare(samples: Sequence[Sample], settle_secs: float) -> dict[str, Any]:
    """Compares medians of the first and the last samples after `settle_secs`; {} without any."""
    settled = [sample for sample in samples if sample.secs >= settle_secs]
    if not settled:
        return {}
    length = max(1, round(len(settled) * WINDOW_FRACTION))
    figures = {}
    for name in Sample._fields[1:]:
        first, last = (
            statistics.median(getattr(sample, name) for sample in part)
            for part in (settled[:length], settled[-length:])
        )
        figures[name] = {"after_settling": first, "at_the_end": last, "ratio": last / first}
    return figures


def windows(rows: Sequence[Mapping[str, Any]], start: float, end: float, window_secs: float) -> list[float]:
    """Returns steps a second in each full window of the rows from `start` to `end`, in seconds of training."""
    rates, first = [], None
    for row in rows:
        if not start <= row["secs"] <= end:
            continue
        if first is None:
            first = row
        elif row["secs"] - first["secs"] >= window_secs:
            rates.append((row["env_steps"] - first["env_steps"]) / (row["secs"] - first["secs"]))
            first = row
    return rates
