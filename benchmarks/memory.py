"""Memory of a game, of an actor process and of a training; of the device, where the platform reports it.

    python -m benchmarks.memory --json memory.json

Host memory is proportional set size (PSS): a page shared by n processes counts for 1/n in each.
"""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from benchmarks import harness
from benchmarks.harness import run_app
from benchmarks.host_envs import HostEnvs
from benchmarks.training import SMOKE_FLAGS, memory_of, train
from oni_jax.settings.worlds import EnvConfig, NetHackConfig

FLAGS = "--batch_size=4096 --train_for_env_steps=20480"
_GAMES = flags.DEFINE_list("games", None, "Numbers of games in a process. (default: 1,20,128; 1,4 with --smoke)")
_STEPS = flags.DEFINE_integer("steps", 100, "Steps of each game before its memory is read.", 1)
_TRAIN_FLAGS = flags.DEFINE_string(
    "train_flags", None, f"Flags of the training. (default: {FLAGS}; small with --smoke)"
)


# Trains, then prints the device's memory statistics.
TRAIN_AND_PRINT = """
import json, sys
from launch.train import main
code = main(sys.argv[1:])
if not code:
    import jax
    print("\\n" + json.dumps(jax.local_devices()[0].memory_stats()))
sys.exit(code)
"""


def play(num_games: int, num_steps: int, share_code: bool) -> harness.Work:
    """Plays games, if any. Result: bytes of this process with its games running."""
    yield
    nethack = NetHackConfig(share_code=share_code, stepper="python")
    games = HostEnvs(EnvConfig(root_env=harness.ROOT_ENV, nethack=nethack), num_games) if num_games else None
    if games:
        games.run(num_steps)
    yield
    num_bytes = memory_of(os.getpid())
    if games:
        games.close()
    return num_bytes


def measure_process(num_games: int, num_steps: int, share_code: bool) -> int:
    """Measures the bytes of a process that plays, alone, so that it shares no pages with another one."""
    return harness.run_together(play, [(num_games, num_steps, share_code)])[0].result


def measure_games(counts: Sequence[int], num_steps: int, share_code: bool) -> dict[str, Any]:
    """Measures bytes of processes with these numbers of games, and of each game."""
    empty = measure_process(0, 0, share_code)
    figures: dict[str, Any] = {"process_without_games_bytes": empty}
    for count in counts:
        total = measure_process(count, num_steps, share_code)
        figures[f"{count}_games"] = {"process_bytes": total, "bytes_per_game": (total - empty) / count}
    return figures


def measure_training(train_flags: Sequence[str]) -> dict[str, Any]:
    """Measures the peak memory of all processes of a training, and of the device, where it is reported."""
    variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    run = train("none", train_flags, variables=variables, program=("-c", TRAIN_AND_PRINT))
    device: Mapping[str, int] = json.loads(run.output.splitlines()[-1]) or {}
    return {
        "peak_bytes": max(run.memory_bytes),
        "device_peak_bytes": device.get("peak_bytes_in_use"),
        "flags": shlex.join(train_flags),
    }


def main() -> None:
    counts = [int(count) for count in _GAMES.value or harness.sized([1, 20, 128], [1, 4])]
    training_flags = shlex.split(_TRAIN_FLAGS.value or harness.sized(FLAGS, SMOKE_FLAGS))
    figures = {
        "shared_code": measure_games(counts, _STEPS.value, share_code=True),
        "own_code": measure_games(counts, _STEPS.value, share_code=False),
        "training": measure_training(training_flags),
    }
    harness.write_report(harness.JSON.value, figures)


if __name__ == "__main__":
    run_app(main)
