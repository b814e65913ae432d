"""A soak test: long runs at full speed with a fault every half minute; measures losses and leaks.

    python -m benchmarks.soak --secs 3600 --json soak.json
    python -m benchmarks.soak --case all --secs 7200 --json soak.json
    python -m benchmarks.soak --fault actor --train_flags "--engine=built …"

A case is a world, on the host or on the device, a reward type, and who answers: a server or recorded answers
(`soak_cases.CASES`). Several cases run in turn, each for an equal part of --secs; `all` has each reward type. The exit
code is 1 where anything was lost.

The faults are drawn at random from those that a run must survive: a server that is killed, frozen or answers with any
of the judge's faults; actor processes that are killed, crash or hang (replaced after a minute); files that can't grow;
Slurm's warning signal. Requests are lists of prompts, so that answers out of order, too many or too few could go to
other messages. `labels` compares the label store with the judge's log. Memory, open files and threads are those of
the program itself; `all` is the program with all its processes. Growth is from the first samples after --settle_secs
to the last ones, by medians.
"""

import contextlib
import functools
import math
import pathlib
import random
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import psutil
from absl import flags

from benchmarks.harness import JSON, run_app, sized, write_report
from benchmarks.soak_cases import CASES, DEVICE_FLAGS, HOST_FLAGS, SMALL_DEVICE_FLAGS, Case, losses
from benchmarks.training import SMALL_FLAGS
from oni_jax.host.run_files import saved_steps
from tests.support.faults import SERVER_FAULTS, LabelAudit, Sample, Server, compare, take_sample
from tests.support.launched import Launched, last_row, rows

_SECS = flags.DEFINE_float("secs", None, "Seconds of training of all cases. (default: 3600; 40 with --smoke)")
_CASES = flags.DEFINE_multi_enum("case", ["nethack"], [*CASES, "all"], "Kinds of run, in turn.")
_FAULT_EVERY_SECS = flags.DEFINE_float("fault_every_secs", None, "Between faults. (default: 30; 4 with --smoke)")
_SETTLE_SECS = flags.DEFINE_float(
    "settle_secs", None, "Before memory is compared. (default: 600, or a third of a case if less)"
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the faults.")
_FAULTS = ("server", "server", "actor", "rest")
_KINDS = flags.DEFINE_multi_enum("fault", _FAULTS, sorted(set(_FAULTS)), "Kinds of faults, equally likely.")
_FLAGS = flags.DEFINE_string("train_flags", None, f"Sizes of the runs. (default: {HOST_FLAGS}; small with --smoke)")

SAMPLE_SECS = 5.0
START_SECS = 600.0  # until a run's first row
SMALL_FILE_BYTES = 1024


class Faults:
    """Injects faults into a run, one at a time."""

    def __init__(self, run: Launched, server: Server | None, seed: int, kinds: Sequence[str]):
        self._run, self._server, self._random = run, server, random.Random(seed)
        breaks = {"server": self._break_server, "actor": self._break_actor, "rest": self._break_rest}
        self._kinds = [breaks[kind] for kind in kinds]
        self.counts: Counter[str] = Counter()
        self._mend: Callable[[], object] | None = None

    def inject(self) -> None:
        """Repairs the last fault, and injects another."""
        self.mend()
        name = self._random.choice(self._kinds)()
        self.counts[name] += 1
        print(f"fault: {name}", flush=True)

    def mend(self) -> None:
        if self._mend:
            self._mend()
            self._mend = None

    def _break_server(self) -> str:
        assert self._server
        fault = self._random.choice((*SERVER_FAULTS, "absent", "frozen"))
        self._mend = self._restart_server
        if fault == "frozen":
            self._server.freeze()
        else:
            self._server.stop()
            if fault != "absent":
                self._server.start(fault)
        return f"server_{fault}"

    def _restart_server(self) -> None:
        assert self._server
        self._server.stop()
        self._server.start()

    def _break_actor(self) -> str:
        number = self._random.choice((signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP))
        try:
            actors = [process for process in self._run.descendants() if process.name().startswith("actor-")]
            self._random.choice(sorted(actors, key=lambda process: process.pid)).send_signal(number)
        except (psutil.NoSuchProcess, IndexError):  # it is being replaced
            return "actor_none_there"
        return f"actor_{number.name}"

    def _break_rest(self) -> str:
        if self._random.random() < 0.5:
            self._run.process.send_signal(signal.SIGUSR1)
            return "SIGUSR1"
        self._limit_files(SMALL_FILE_BYTES)
        self._mend = functools.partial(self._limit_files, resource.RLIM_INFINITY)
        return "files_can_not_grow"

    def _limit_files(self, num_bytes: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in (psutil.Process(self._run.process.pid), *self._run.descendants()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if not process.name().startswith("actor-"):  # games load their code through files in memory
                        process.rlimit(resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))


def main() -> int:
    names = [*CASES] if "all" in _CASES.value else _CASES.value
    secs = (_SECS.value or sized(3600.0, 40.0)) / len(names)
    figures = {}
    for name in names:
        print(f"case {name}: {secs:.0f} s", flush=True)
        with tempfile.TemporaryDirectory() as directory:
            figures[name] = soak(CASES[name], secs, pathlib.Path(directory))
        growth = figures[name].get("memory_all", {}).get("ratio", math.nan)
        print(f"case {name}: {', '.join(losses(figures[name])) or 'nothing lost'}; memory x {growth:.3f}", flush=True)
    lost = [name for name, found in figures.items() if losses(found)]
    print(f"{len(names) - len(lost)} of {len(names)} cases lost nothing")
    write_report(JSON.value, figures if len(names) > 1 else figures[names[0]])
    return 1 if lost else 0


def soak(case: Case, secs: float, directory: pathlib.Path) -> dict[str, Any]:
    """Runs a case with faults. Returns what was measured."""
    server = Server(directory, case.root_env) if case.asks else None
    if server:
        server.start()
    run = Launched("launch.train", f"--train_dir={directory}", "--experiment=run", *_words(case, secs, server))
    folder = directory / "run"
    try:
        run.wait_for(lambda: rows(folder), START_SECS)
    except AssertionError as error:  # the error holds its output
        print(error)
        run.kill()
        return {"exit_code": run.process.returncode, "left_over": len(run.leftovers()), "unsaved_steps": 0}
    kinds = [kind for kind in _KINDS.value if {"server": case.asks, "actor": not case.on_device}.get(kind, True)]
    faults = Faults(run, server, _SEED.value, kinds or ["rest"])
    audit = LabelAudit(folder / "labels.sqlite")
    samples = _watch(run, folder, faults, audit if server else None, secs)
    print(run.finish())
    faults.mend()
    last = rows(folder)[-1]
    figures = {
        "exit_code": run.process.returncode,
        "faults": dict(faults.counts),
        "num_faults": sum(faults.counts.values()),
        "left_over": len(run.leftovers()),
        "unsaved_steps": last["env_steps"] - max(saved_steps(str(folder)), default=0),
        **compare(samples, min(_SETTLE_SECS.value or sized(600.0, 10.0), secs / 3)),
        **{name: last.get(name, 0) for name in ("env_steps", "env_steps_per_sec_overall", "actor_restarts")},
    }
    if server:
        figures["labels"] = audit.result(server)
        server.stop()
    return figures


def _words(case: Case, secs: float, server: Server | None) -> list[str]:
    small = SMALL_DEVICE_FLAGS if case.on_device else f"{SMALL_FLAGS} --log_every_sec=1 --save_every_sec=5"
    words = [*case.words(), f"--train_for_seconds={secs}", f"--seed={_SEED.value}", "--on_sigusr1=save"]
    words += (_FLAGS.value or sized(DEVICE_FLAGS if case.on_device else HOST_FLAGS, small)).split()
    words += [] if case.on_device else ["--max_actor_restarts=1000"]
    return [*words, "--llm_api=completions", f"--llm_server_addr={server.address}"] if server else words


def _watch(run: Launched, folder: pathlib.Path, faults: Faults, audit: LabelAudit | None, secs: float) -> list[Sample]:
    """Injects faults into a run until it ends. Returns samples of its resources."""
    every, samples = _FAULT_EVERY_SECS.value or sized(30.0, 4.0), []
    now = time.monotonic()
    start = now - last_row(folder).get("secs", 0.0)  # start of training, whose end is to find nothing broken
    sample_due = fault_due = now + every
    while run.process.poll() is None:
        now = time.monotonic()
        if now >= fault_due and now - start < secs - 2 * every:
            faults.inject()
            fault_due += every
        if now >= sample_due:
            with contextlib.suppress(psutil.Error):  # it is ending
                samples.append(take_sample(run.process.pid, now - start))
            if audit:
                audit.look()
            sample_due += SAMPLE_SECS
        if now - start > secs - every:
            faults.mend()
        time.sleep(0.1)
    return samples


if __name__ == "__main__":
    run_app(main)
