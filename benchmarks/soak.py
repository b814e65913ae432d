"""A soak test: a long run at full speed with a fault every half minute; measures losses and leaks.

    python -m benchmarks.soak --secs 3600 --json soak.json
    python -m benchmarks.soak --fault actor --train_flags "--engine=built …"

The faults are drawn at random from those that a run must survive: a server that is killed, frozen or answers with any
of the judge's faults; actor processes that are killed, crash or hang (replaced after a minute); files that can't grow;
Slurm's warning signal. Requests are lists of prompts, so that answers out of order, too many or too few could go to
other messages. `labels` compares the label store with the judge's log. Memory, open files and threads are those of
the program itself; `all` is the program with all its processes. Growth is from the first samples after --settle_secs
to the last ones, by medians.
"""

import contextlib
import functools
import pathlib
import random
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence

import psutil
from absl import flags

from benchmarks.harness import JSON, run_app, sized, write_report
from benchmarks.training import SMALL_FLAGS
from tests.support.faults import SERVER_FAULTS, LabelAudit, Server, compare, start_run, take_sample
from tests.support.launched import Launched, rows

FULL_FLAGS = "--num_workers 2 --num_envs_per_worker 20 --log_every_sec=5 --save_every_sec=60"
_SECS = flags.DEFINE_float("secs", None, "Seconds of training. (default: 3600; 40 with --smoke)")
_FAULT_EVERY_SECS = flags.DEFINE_float("fault_every_secs", None, "Between faults. (default: 30; 4 with --smoke)")
_SETTLE_SECS = flags.DEFINE_float("settle_secs", None, "Before memory is compared. (default: 600; 10 with --smoke)")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the faults.")
_FAULTS = ("server", "server", "actor", "rest")
_KINDS = flags.DEFINE_multi_enum("fault", _FAULTS, sorted(set(_FAULTS)), "Kinds of faults, equally likely.")
_FLAGS = flags.DEFINE_string("train_flags", None, f"Flags of the run. (default: {FULL_FLAGS}; small with --smoke)")

SAMPLE_SECS = 5.0
SMALL_FILE_BYTES = 1024


class Faults:
    """Injects faults into a run, one at a time."""

    def __init__(self, run: Launched, server: Server, seed: int, kinds: Sequence[str]):
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


def main(argv: Sequence[str]) -> None:
    del argv
    secs = _SECS.value or sized(3600.0, 40.0)
    every, settle = _FAULT_EVERY_SECS.value or sized(30.0, 4.0), _SETTLE_SECS.value or sized(600.0, 10.0)
    with tempfile.TemporaryDirectory() as directory:
        server = Server(pathlib.Path(directory))
        server.start()
        words = (_FLAGS.value or sized(FULL_FLAGS, f"{SMALL_FLAGS} --log_every_sec=1 --save_every_sec=5")).split()
        words += ["--llm_api=completions", f"--seed={_SEED.value}", "--on_sigusr1=save", "--max_actor_restarts=1000"]
        run, folder = start_run(directory, server, "online_cls", f"--train_for_seconds={secs}", *words)
        run.wait_for(lambda: rows(folder))
        faults = Faults(run, server, _SEED.value, _KINDS.value)
        audit, samples = LabelAudit(folder / "labels.sqlite"), []
        start = time.monotonic()
        sample_due = fault_due = start + every
        while run.process.poll() is None:
            now = time.monotonic()
            if now >= fault_due and now - start < secs - 2 * every:
                faults.inject()
                fault_due += every
            if now >= sample_due:
                with contextlib.suppress(psutil.Error):  # it is ending
                    samples.append(take_sample(run.process.pid, now - start))
                audit.look()
                sample_due += SAMPLE_SECS
            if now - start > secs - every:
                faults.mend()
            time.sleep(0.1)
        print(run.finish())
        faults.mend()
        last = rows(folder)[-1]
        figures = {
            "exit_code": run.process.returncode,
            "faults": dict(faults.counts),
            "num_faults": sum(faults.counts.values()),
            "labels": audit.result(server),
            "left_over": len(run.leftovers()),
            **compare(samples, settle),
            **{name: last[name] for name in ("env_steps", "env_steps_per_sec_overall", "actor_restarts")},
        }
        server.stop()
    write_report(JSON.value, figures)


if __name__ == "__main__":
    run_app(main)
