"""Kills a small run at random moments, repeatedly, and checks that the next start resumes it.

    python -m benchmarks.kills --resumes 100 --json kills.json

Each start is killed (SIGKILL, the program alone) at a random moment, up to --longest_secs after it has read the last
checkpoint (the first start: has written one), or, one in five, after its beginning; it saves all the time, so that
many kills hit a checkpoint being written. `resumes` counts the starts that resumed from the newest finished checkpoint,
`corrupt` those that could not, or resumed from another; `labels` compares the label store with the judge's log;
`left_over` counts processes, shared memory and temporary files left behind.
"""

import functools
import pathlib
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable

from absl import flags

from benchmarks.harness import JSON, run_app, sized, write_report
from benchmarks.training import SMALL_FLAGS
from oni_jax.host.run_files import saved_steps
from tests.support.faults import LabelAudit, Server, start_run
from tests.support.launched import Launched

_RESUMES = flags.DEFINE_integer("resumes", None, "Resumed starts that are killed. (default: 100; 2 with --smoke)", 1)
_LONGEST_SECS = flags.DEFINE_float("longest_secs", 12.0, "Longest time before a kill.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the moments.")

RUN_FLAGS = f"{SMALL_FLAGS} --save_every_steps=128 --log_every_sec=1 --keep_checkpoints=2"
EARLY_FRACTION = 0.2  # fraction of the kills that may come before the checkpoint is read
RESUMED = re.compile(r"resumed at ([\d,]+) environment steps")


def newest_checkpoint(folder: pathlib.Path) -> int:
    """Returns the environment steps of the newest finished checkpoint (orbax renames its folder last); 0: none."""
    return max(saved_steps(str(folder)), default=0)


def resumed(run: Launched) -> re.Match | None:
    """Finds the line about the checkpoint that the run resumed from; None before it is printed."""
    return RESUMED.search(run.output())


def kill_at_random(
    run: Launched, audit: LabelAudit, generator: random.Random, early_fraction: float, is_ready: Callable[[], object]
) -> bool:
    """Kills a run at a random moment after it is ready or, with probability `early_fraction`, after its start.

    Returns False when it had ended by itself.
    """
    wait_secs, counting = generator.uniform(0, _LONGEST_SECS.value), generator.random() < early_fraction
    since = time.monotonic()
    while run.process.poll() is None and not (counting and time.monotonic() > since + wait_secs):
        if not counting and is_ready():
            counting, since = True, time.monotonic()
        audit.look()
        time.sleep(0.05)
    was_running = run.process.poll() is None
    run.kill()
    return was_running


def main() -> None:
    generator = random.Random(_SEED.value)
    counts = Counter(kills=0, resumes=0, corrupt=0, left_over=0)
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(directory) / "run"
        server = Server(pathlib.Path(directory))
        server.start()
        audit = LabelAudit(folder / "labels.sqlite")
        last = False
        while not last:
            expected = newest_checkpoint(folder)
            last = counts["resumes"] >= (_RESUMES.value or sized(100, 2))
            words = [*RUN_FLAGS.split(), *([f"--train_for_env_steps={expected + 1280}"] if last else [])]
            run, _ = start_run(directory, server, "online_cls_reward_model", *words, temporary=temporary)
            if last:
                run.process.wait(300)
                was_running = True
            else:
                counts["kills"] += 1
                if expected:
                    early_fraction, is_ready = EARLY_FRACTION, functools.partial(resumed, run)
                else:  # nothing to resume from yet
                    early_fraction, is_ready = 0.0, functools.partial(newest_checkpoint, folder)
                was_running = kill_at_random(run, audit, generator, early_fraction, is_ready)
            output = run.output()
            found = resumed(run)
            if not was_running or (found and int(found[1].replace(",", "")) != expected) or "can't be read" in output:
                counts["corrupt"] += 1
                print(f"expected {expected}:\n{output}", flush=True)
            elif found:
                counts["resumes"] += 1
            counts["left_over"] += len(run.leftovers(but_files=not last))  # the next start removes a killed one's files
            print(f"{counts['kills']}: at {expected}, {'resumed' if found else 'not resumed yet'}", flush=True)
        figures = {
            **counts,
            "labels": audit.result(server),
            "env_steps": newest_checkpoint(folder),
            "last_exit_code": run.process.returncode,  # type: ignore
        }
        server.stop()
    write_report(JSON.value, figures)


if __name__ == "__main__":
    run_app(main)
