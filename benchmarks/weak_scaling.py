"""Updates of several processes as one run, beside as many runs of one process each; without games.

    python -m benchmarks.weak_scaling --processes 2 --batch_size 1024 --json weak_scaling.json

Every process has a core of its own, as far as there are enough, and a sampled batch of `--batch_size` frames. Together
they make one update of all batches, and tell each other their captions before each, as a run does. Apart they do the
same work, at the same time, with nobody to wait for. The machine's cores share caches and memory, so that processes
apart are slower than one alone: that is measured too, and no fault of the collectives.
"""

import dataclasses
import functools
import time
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jax
from absl import app, flags

from benchmarks.builders import Update, config_of
from benchmarks.faults import free_port
from benchmarks.harness import (
    JSON,
    Work,
    alternate,
    num_repeats,
    ratio,
    run_together,
    sized,
    spread,
    total_rate,
    write_report,
)
from oni_jax.config import DevicesConfig
from oni_jax.distributed.meeting import joined
from oni_jax.distributed.peers import Peers
from oni_jax.distributed.sharing import Shared
from oni_jax.learner.loop import NoAnnotator
from oni_jax.parallel import Replicas
from oni_jax.runtime import StopRequest, tune_memory

_PROCESSES = flags.DEFINE_integer("processes", 2, "Processes.", 2)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", None, "Frames of each. (default: 1024; 64 with --smoke)", 32)
_UPDATES = flags.DEFINE_integer("updates", None, "Timed updates of each. (default: 10; 2 with --smoke)", 1)
_HIDDEN_SIZE = flags.DEFINE_integer("hidden_size", None, "Of the policy. (default: that of a run; 32 with --smoke)", 1)

NUM_SHARES = 20


def learn(devices: DevicesConfig, batch_size: int, hidden_size: int, num_updates: int) -> Work:
    """A process's work: updates of a run of its own, or of the one that `devices` tell of.

    Its result: seconds in which all tell each other a batch's captions, with nothing else to do.
    """
    with joined(devices, StopRequest()) as peers:
        config = config_of(batch_size)
        config = dataclasses.replace(config, network=dataclasses.replace(config.network, hidden_size=hidden_size))
        update = Update(config, Replicas(jax.devices()))
        exchange: Any = SimpleNamespace(episodes=deque(), failures=deque(), num_game_restarts=0)
        shared = Shared(peers, NoAnnotator(), exchange, ()) if isinstance(peers, Peers) else None

        def run(count: int) -> None:
            for _ in range(count):
                if shared:
                    shared.share(update.captions)
                update.run(1)

        run(2)
        yield
        run(num_updates)
        yield
        start = time.perf_counter()
        for _ in range(NUM_SHARES):
            if shared:
                shared.share(update.captions)
        return (time.perf_counter() - start) / NUM_SHARES


def measure(
    num_processes: int, together: bool, batch_size: int, hidden_size: int, num_updates: int
) -> tuple[float, float]:
    """Frames a second of all of them, and the seconds in which they tell each other."""
    sizes = (batch_size, hidden_size, num_updates)
    address = f"127.0.0.1:{free_port()}"
    of_each = [
        DevicesConfig(coordinator_address=address, num_processes=num_processes, process_id=i)
        if together
        else DevicesConfig()
        for i in range(num_processes)
    ]
    timed = run_together(learn, [(devices, *sizes) for devices in of_each])
    return total_rate(timed, num_processes * batch_size * num_updates), max(own.result for own in timed)


def main(argv: Sequence[str]) -> None:
    del argv
    tune_memory()  # as a run does
    number, batch_size = _PROCESSES.value, _BATCH_SIZE.value or sized(1024, 64)
    hidden_size = _HIDDEN_SIZE.value or sized(config_of().network.hidden_size, 32)
    sizes = (batch_size, hidden_size, _UPDATES.value or sized(10, 2))
    measured = alternate(
        {
            "together": functools.partial(measure, number, True, *sizes),
            "apart": functools.partial(measure, number, False, *sizes),
            "one": functools.partial(measure, 1, False, *sizes),
        },
        num_repeats(3),
    )
    rates = {name: [rate for rate, _ in runs] for name, runs in measured.items()}
    secs_lost = [number * batch_size * (1 / a - 1 / b) for a, b in zip(rates["together"], rates["apart"])]
    figures = {
        "frames_per_sec": {name: spread(values) for name, values in rates.items()},
        "together_of_apart": ratio(rates["together"], rates["apart"]),
        "apart_of_one_times_processes": ratio(rates["apart"], [number * rate for rate in rates["one"]]),
        "secs_an_update_for_being_together": spread(secs_lost),
        "secs_to_tell_captions": spread([secs for _, secs in measured["together"]]),
        "processes": number,
        "batch_size_of_each": batch_size,
        "hidden_size": hidden_size,
    }
    write_report(JSON.value, figures)


if __name__ == "__main__":
    app.run(main)
