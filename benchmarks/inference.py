"""The jitted policy step in frames a second, host to host, and the round trip of one call.

    python -m benchmarks.inference --batch_sizes 10,64,256 --json inference.json

A frame is one game's observation, from its packed record to its action on the host. `frames_per_sec` keeps IN_FLIGHT
calls in flight, as several groups of games do; `frames_per_sec_alone` waits for each call before the next. PyTorch's
eager forward pass, when it is installed, has its inputs drawn and on the device already.
"""

import functools
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from importlib import util
from typing import Any

import numpy as np
from absl import flags

from benchmarks.builders import PolicyStep
from benchmarks.harness import JSON, alternate, measure_rate, num_repeats, ratio, run_app, sized, spread, write_report
from oni_jax.learner.compilations import CompilationCounter

_BATCH_SIZES = flags.DEFINE_list(
    "batch_sizes", None, "Observations in a call. (default: 10,32,64,128,256; 16 with --smoke)"
)
_PRECISIONS = flags.DEFINE_list("precisions", ["float32"], "Precisions of the policy.")
_SECS = flags.DEFINE_float("secs", 1.0, "Seconds of each measurement, at least.")
IN_FLIGHT = 3
CALLS_AT_ONCE = 10
ROUND_TRIP_SIZE, ROUND_TRIP_SECS = 1024, 4.0


def run(step: PolicyStep, in_flight: int) -> None:
    """Makes CALLS_AT_ONCE calls, and copies their outputs to the host."""
    outputs = deque()
    for _ in range(CALLS_AT_ONCE):
        outputs.append(step.start())
        if len(outputs) == in_flight:
            np.asarray(outputs.popleft())
    for output in outputs:
        np.asarray(output)


def measure(batch_size: int, precision: str) -> dict[str, Any]:
    """Measures our step with several calls in flight and with one, and PyTorch's, in turn."""
    step = PolicyStep(batch_size, precision)
    calls: dict[str, Callable[[], Any]] = {
        "frames_per_sec": functools.partial(run, step, IN_FLIGHT),
        "frames_per_sec_alone": functools.partial(run, step, 1),
    }
    if util.find_spec("torch"):
        from benchmarks.peers.torch_update import TorchForward

        calls["frames_per_sec_torch_eager"] = functools.partial(TorchForward(step, precision).run, CALLS_AT_ONCE)
    for call in calls.values():
        call()
    num_frames, secs = CALLS_AT_ONCE * batch_size, sized(_SECS.value, 0.0)
    with closing(CompilationCounter()) as compilations:
        rates = alternate(
            {name: functools.partial(measure_rate, call, num_frames, secs) for name, call in calls.items()},
            num_repeats(),
        )
    print(f"{precision} {batch_size}: {max(rates['frames_per_sec']):,.0f} frames/s", flush=True)
    peers = [name for name in rates if "torch" in name]
    return {
        **{name: spread(values) for name, values in rates.items()},
        **{f"ratio_to_{name[15:]}": ratio(rates["frames_per_sec"], rates[name]) for name in peers},
        "compilations_while_measured": compilations.count,
    }


def round_trip(precision: str) -> dict[str, Any]:
    """Measures milliseconds from ROUND_TRIP_SIZE packed observations on the host to their actions there."""
    step = PolicyStep(ROUND_TRIP_SIZE, precision)
    run(step, 1)
    percentiles = {50: [], 99: []}
    for _ in range(num_repeats()):
        millis, end = [], time.perf_counter() + sized(ROUND_TRIP_SECS, 0.0)
        while (start := time.perf_counter()) < end or not millis:
            np.asarray(step.start())
            millis.append(1e3 * (time.perf_counter() - start))
        for percent, values in percentiles.items():
            values.append(float(np.percentile(millis, percent)))
    return {f"round_trip_ms_p{percent}": spread(values) for percent, values in percentiles.items()}


def main() -> None:
    batch_sizes = _BATCH_SIZES.value or sized(["10", "32", "64", "128", "256"], ["16"])
    write_report(
        JSON.value,
        {
            precision: {size: measure(int(size), precision) for size in batch_sizes} | round_trip(precision)
            for precision in _PRECISIONS.value
        },
    )


if __name__ == "__main__":
    run_app(main)
