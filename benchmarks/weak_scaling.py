"""Weak scaling: updates of several processes as one run, against as many runs of one process each; without games.

    python -m benchmarks.weak_scaling --processes 2 --batch_size 1024 --json weak_scaling.json

Every process has a separate core, as far as there are enough, and a sampled batch of `--batch_size` frames. In turn,
in every repeat, they make updates `together`, of all batches, with an all-gather of captions before each, as a run
does; `apart`, the same work at the same time without collectives; `in_step`, apart but for the all-gather of captions,
so that all wait for the slowest before each; and `one`, the primary process alone. Cores share caches and memory, so
that processes apart are slower than one alone, whatever the collectives cost.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
from absl import flags

from benchmarks.builders import Update, config_of
from benchmarks.harness import (
    JSON,
    Timed,
    Work,
    alternate,
    num_repeats,
    ratio,
    run_app,
    run_together,
    sized,
    spread,
    total_rate,
    write_report,
)
from oni_jax.host.large_pages import tune_memory
from oni_jax.host.runtime import StopRequest
from oni_jax.learner.peers.contributions import Contribution
from oni_jax.learner.peers.meeting import joined
from oni_jax.learner.peers.peers import Peers
from oni_jax.parallel import Replicas
from oni_jax.settings.worlds import DevicesConfig
from oni_jax.types import StepCaptions
from tests.support.faults import free_port

_PROCESSES = flags.DEFINE_integer("processes", 2, "Processes.", 2)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", None, "Frames per process. (default: 1024; 64 with --smoke)", 32)
_UPDATES = flags.DEFINE_integer("updates", None, "Timed updates of each turn. (default: 10; 2 with --smoke)", 1)
_HIDDEN_SIZE = flags.DEFINE_integer("hidden_size", None, "Of the policy. (default: that of a run; 32 with --smoke)", 1)


def learn(devices: DevicesConfig, batch_size: int, hidden_size: int, num_updates: int, repeats: int) -> Work:
    """Runs a process's updates. Result: Timed of each repeat, by kind, with the CPU seconds of all its threads."""
    with joined(devices, StopRequest()) as peers:
        assert isinstance(peers, Peers)
        config = config_of(batch_size)
        config = dataclasses.replace(config, network=dataclasses.replace(config.network, hidden_size=hidden_size))
        common, local = Update(config, Replicas(jax.devices())), Update(config, Replicas(jax.local_devices()))
        contribution = Contribution(StepCaptions(*(batch._replace(observations={}) for batch in common.captions)))

        def share() -> None:
            peers.all_gather(contribution)

        def together() -> None:
            share()
            common.run(1)

        def in_step() -> None:
            share()
            local.run(1)

        def apart() -> None:
            local.run(1)

        def one() -> None:
            if peers.is_primary:
                local.run(1)

        def timed(work: Callable[[], None], count: int) -> Timed:
            peers.all_gather_arrays({})  # a barrier: all begin at once
            start_secs, cpu_secs = time.monotonic(), time.process_time()
            for _ in range(count):
                work()
            return Timed(start_secs, time.monotonic(), time.process_time() - cpu_secs)

        works = {work.__name__: work for work in (together, in_step, apart, one, share)}
        for work in works.values():
            timed(work, 2)
        yield
        measured = alternate({k: functools.partial(timed, work, num_updates) for k, work in works.items()}, repeats)
        yield
        return measured


def main() -> None:
    tune_memory()  # as a run does
    number, batch_size = _PROCESSES.value, _BATCH_SIZE.value or sized(1024, 64)
    hidden_size = _HIDDEN_SIZE.value or sized(config_of().network.hidden_size, 32)
    num_updates, repeats = _UPDATES.value or sized(10, 2), num_repeats(10)
    address = f"127.0.0.1:{free_port()}"
    of_each = [DevicesConfig(coordinator_address=address, num_processes=number, process_id=i) for i in range(number)]
    sizes = (batch_size, hidden_size, num_updates, repeats)
    found = [timed.result for timed in run_together(learn, [(devices, *sizes) for devices in of_each])]

    def turns(kind: str, num_processes: int) -> list[tuple[Timed, ...]]:
        """Returns the measurements of the processes, for each repeat."""
        return list(zip(*(result[kind] for result in found[:num_processes]), strict=True))

    def rates(kind: str, num_processes: int) -> list[float]:
        return [total_rate(turn, num_processes * batch_size * num_updates) for turn in turns(kind, num_processes)]

    def cpu_secs(kind: str) -> dict[str, Any]:
        return spread([sum(timing.result for timing in turn) / (number * num_updates) for turn in turns(kind, number)])

    together, in_step, apart = (rates(kind, number) for kind in ("together", "in_step", "apart"))
    one = rates("one", 1)
    secs_lost = [number * batch_size * (1 / a - 1 / b) for a, b in zip(together, apart, strict=True)]
    share_rates = [total_rate(turn, num_updates) for turn in turns("share", number)]
    figures = {
        "frames_per_sec": {
            "together": spread(together),
            "in_step": spread(in_step),
            "apart": spread(apart),
            "one": spread(one),
        },
        "together_of_apart": ratio(together, apart),
        "in_step_of_apart": ratio(in_step, apart),
        "apart_of_one_times_processes": ratio(apart, [number * rate for rate in one]),
        "secs_an_update_for_being_together": spread(secs_lost),
        "secs_to_tell_captions": spread([1 / rate for rate in share_rates]),
        "cpu_secs_an_update_of_each": {kind: cpu_secs(kind) for kind in ("together", "in_step", "apart", "share")},
        "processes": number,
        "batch_size_of_each": batch_size,
        "hidden_size": hidden_size,
    }
    write_report(JSON.value, figures)


if __name__ == "__main__":
    run_app(main)
