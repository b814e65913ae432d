"""Kills a small run at random moments, again and again, and looks at what the next start finds.

    python -m benchmarks.kills --kills 100 --json kills.json

Each start is killed (SIGKILL, the program alone) at a moment drawn by --seed between its beginning and --longest_secs;
it saves all the time, so that many kills meet a checkpoint being written. `resumes` counts the starts that went on from
the newest whole checkpoint, `corrupt` those that could not, or went on from another; `labels` compares the label store
with the judge's own log; `left_over` counts processes, shared memory and temporary files that stayed behind.
"""

import pathlib
import random
import re
import tempfile
import time
from collections.abc import Sequence

from absl import app, flags

from benchmarks.faults import LabelAudit, Server, start_run
from benchmarks.harness import JSON, sized, write_report
from benchmarks.training import SMALL_FLAGS
from oni_jax.checkpointing import checkpoint_steps

_KILLS = flags.DEFINE_integer("kills", None, "Starts that are killed. (default: 100; 2 with --smoke)", 1)
_LONGEST_SECS = flags.DEFINE_float("longest_secs", 20.0, "The last moment, after the program's start.")
_SEED = flags.DEFINE_integer("seed", 0, "Draws the moments.")

RUN_FLAGS = f"{SMALL_FLAGS} --save_every_steps=128 --log_every_sec=1 --keep_checkpoints=2"
RESUMED = re.compile(r"resumed at ([\d,]+) environment steps")


def newest_checkpoint(folder: pathlib.Path) -> int:
    """Environment steps of the newest that was finished: orbax gives a folder its name in the end. 0: there is none."""
    return max(checkpoint_steps(str(folder / "checkpoints")), default=0)


def main(argv: Sequence[str]) -> None:
    del argv
    generator = random.Random(_SEED.value)
    num_kills = _KILLS.value or sized(100, 2)
    resumes = corrupt = before_resuming = left_over = 0
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(directory) / "run"
        server = Server(pathlib.Path(directory))
        server.start()
        audit = LabelAudit(folder / "labels.sqlite")
        for number in range(num_kills + 1):
            expected = newest_checkpoint(folder)
            last = number == num_kills
            words = [*RUN_FLAGS.split(), *([f"--train_for_env_steps={expected + 1280}"] if last else [])]
            run, _ = start_run(directory, server, "online_cls_reward_model", *words, temporary=temporary)
            if last:
                run.process.wait(300)
            else:
                deadline = time.monotonic() + generator.uniform(0, _LONGEST_SECS.value)
                while time.monotonic() < deadline and run.process.poll() is None:
                    audit.look()
                    time.sleep(0.05)
            ended_early = not last and run.process.poll() is not None
            run.kill()
            output = run.output()
            found = RESUMED.search(output)
            if ended_early or (found and int(found[1].replace(",", "")) != expected) or "can't be read" in output:
                corrupt += 1
                print(f"start {number} expected {expected}:\n{output}", flush=True)
            elif found:
                resumes += 1
            else:
                before_resuming += expected > 0
            left_over += len(run.leftovers(but_files=not last))  # a killed one's files go with the next start
            print(f"{number}: at {expected}, {'resumed' if found else 'killed before it resumed'}", flush=True)
        figures = {
            "kills": num_kills,
            "resumes": resumes,
            "killed_before_resuming": before_resuming,
            "corrupt": corrupt,
            "labels": audit.result(server),
            "left_over": left_over,
            "env_steps": newest_checkpoint(folder),
            "last_exit_code": run.process.returncode,
        }
        server.stop()
    write_report(JSON.value, figures)


if __name__ == "__main__":
    app.run(main)
