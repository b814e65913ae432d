"""Memory: of a game, of an actor process, of a training; of the device where it counts.

    python -m benchmarks.memory --json memory.json

Host memory is proportional (PSS): a page that n processes share counts for 1/n in each.
"""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from benchmarks import harness
from benchmarks.stepper import Stepper, Workload
from benchmarks.training import SMOKE_FLAGS, memory_of, train

FLAGS = "--batch_size=4096 --train_for_env_steps=20480"
_GAMES = flags.DEFINE_list("games", None, "Numbers of games in a process. (default: 1,20,128; 1,4 with --smoke)")
_STEPS = flags.DEFINE_integer("steps", 100, "Steps of each game before its memory is read.", 1)
_TRAIN_FLAGS = flags.DEFINE_string(
    "train_flags", None, f"Flags of the training. (default: {FLAGS}; small with --smoke)"
)


# Trains, then prints what the device says of its memory.
TRAIN_AND_TELL = """
import json, sys
from launch.train import main
code = main(sys.argv[1:])
if not code:
    import jax
    print("\\n" + json.dumps(jax.local_devices()[0].memory_stats()))
sys.exit(code)
"""


def play(num_games: int, num_steps: int, share_code: bool) -> harness.Work:
    """-> bytes that this process takes with its games under way; without games when there are none."""
    yield
    stepper = None
    if num_games:
        workload = Workload(0, num_games, 0, num_steps)
        stepper = Stepper(workload, "terminal", share_code)
        stepper.run(workload.actions()[1])
    yield
    num_bytes = memory_of(os.getpid())
    if stepper:
        stepper.close()
    return num_bytes


def measure_process(num_games: int, num_steps: int, share_code: bool) -> int:
    """Bytes of a process that plays; no other process plays, so that nothing is shared with one."""
    return harness.run_together(play, [(num_games, num_steps, share_code)])[0].result


def measure_games(counts: Sequence[int], num_steps: int, share_code: bool) -> dict[str, Any]:
    """Of processes with so many games, and what each game added to one without."""
    empty = measure_process(0, 0, share_code)
    figures: dict[str, Any] = {"process_without_games_bytes": empty}
    for count in counts:
        total = measure_process(count, num_steps, share_code)
        figures[f"{count}_games"] = {"process_bytes": total, "bytes_per_game": (total - empty) / count}
    return figures


def measure_training(train_flags: Sequence[str]) -> dict[str, Any]:
    """Peak of all processes of a training, and of the device's memory where it is counted."""
    variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    run = train("none", train_flags, variables=variables, program=("-c", TRAIN_AND_TELL))
    device: Mapping[str, int] = json.loads(run.output.splitlines()[-1]) or {}
    return {
        "peak_bytes": max(run.memory_bytes),
        "device_peak_bytes": device.get("peak_bytes_in_use"),
        "flags": shlex.join(train_flags),
    }


def main(argv: Sequence[str]) -> None:
    del argv
    counts = [int(count) for count in _GAMES.value or harness.sized([1, 20, 128], [1, 4])]
    own_flags = shlex.split(_TRAIN_FLAGS.value or harness.sized(FLAGS, SMOKE_FLAGS))
    figures = {
        "shared_code": measure_games(counts, _STEPS.value, share_code=True),
        "own_code": measure_games(counts, _STEPS.value, share_code=False),
        "training": measure_training(own_flags),
    }
    harness.write_report(harness.JSON.value, figures)


if __name__ == "__main__":
    app.run(main)
