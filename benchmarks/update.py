"""Our jitted update in frames a second, beside the same update in PyTorch, and the machine's matrix products.

    python -m benchmarks.update --batch_sizes 1024,4096 --precisions float32 --json update.json

A frame is one step of one game. Batches are on the device. PyTorch (benchmarks/peers/torch_update.py) is measured
when it is installed, in turn with ours, on as many threads as there are cores. FLOPs are counted from the layers'
shapes, as three forward passes less the gradients of the inputs; our first layer, which is a table look-up on the CPU,
is counted as computed.
"""

import functools
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib import util
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from absl import flags

from benchmarks.builders import Update, config_of, flops_per_frame
from benchmarks.harness import JSON, alternate, measure_rate, num_repeats, ratio, run_app, sized, spread, write_report
from benchmarks.reward_files import REWARD_TYPES
from oni_jax.learner.compilations import CompilationCounter
from oni_jax.networks.precision import PRECISIONS

_BATCH_SIZES = flags.DEFINE_list("batch_sizes", None, "Frames in an update. (default: 1024,4096; 64 with --smoke)")
_PRECISIONS = flags.DEFINE_list("precisions", ["float32"], "Precisions of the policy.")
_REWARD_TYPE = flags.DEFINE_enum("reward_type", "none", REWARD_TYPES, "Reward inside our update.")
_TORCH_COMPILE = flags.DEFINE_bool("torch_compile", True, "Measure torch.compile, too (not with --smoke).")
_SECS = flags.DEFINE_float("secs", 2.0, "Seconds of each measurement, at least.")


def matrix_product(precision: str) -> tuple[Callable[[], Any], int]:
    """Returns a function that makes large products of square matrices, warmed up, and their FLOPs."""
    size, count = sized(8192 if jax.default_backend() == "gpu" else 3072, 256), 5
    dtype, float32_products = PRECISIONS[precision]
    one, other = jax.random.normal(jax.random.key(0), (2, size, size), dtype)
    product = functools.partial(jax.jit(functools.partial(jnp.matmul, precision=float32_products)), one, other)

    def multiply() -> None:
        jax.block_until_ready([product() for _ in range(count)])

    multiply()
    return multiply, count * 2 * size**3


class Peers(NamedTuple):
    """PyTorch's side: functions that make updates, the loss before the first, and notes on set-up and errors."""

    runs: Mapping[str, Callable[[], Any]]
    loss: float | None
    notes: Mapping[str, Any]


def build_peers(ours: Update, precision: str) -> Peers:
    """Builds PyTorch's update, eager and compiled, warmed up; none without PyTorch. Failures are left out and noted.

    Uses the memory format of images that is faster in eager mode.
    """
    if not util.find_spec("torch"):
        return Peers({}, None, {})
    from benchmarks.peers.torch_update import TorchUpdate

    loss, runs, notes, layouts = None, {}, {}, (False, True)
    for name in ["torch_eager", "torch_compile"] if sized(_TORCH_COMPILE.value, False) else ["torch_eager"]:
        try:
            timed = []
            for channels_last in layouts:
                update = TorchUpdate(ours, precision, name == "torch_compile", channels_last)
                loss = update.loss().item()
                update.run(2)
                timed.append((measure_rate(functools.partial(update.run, 1), 1, 0.0), channels_last, update))
            _, notes["torch_channels_last"], update = max(timed, key=lambda entry: entry[0])
            layouts = (notes["torch_channels_last"],)
            runs[name] = functools.partial(update.run, updates_per_call())
        except Exception as error:  # a missing compiler, too little memory: measure the others
            notes[f"{name}_problem"] = f"{type(error).__name__}: {error}"[:1000]
            print(f"{name} failed: {notes[f'{name}_problem']}", flush=True)
    return Peers(runs, loss, notes)


def updates_per_call() -> int:
    """Returns the number of updates between waits: several where an update takes milliseconds."""
    return 10 if jax.default_backend() == "gpu" else 1


def measure(batch_size: int, precision: str) -> dict[str, Any]:
    """Measures all sides at a batch size, in turn."""
    ours = Update(config_of(batch_size, precision, _REWARD_TYPE.value))
    peers = build_peers(ours, precision)
    loss = ours.run(1)
    ours.run(2)
    count, secs = updates_per_call(), sized(_SECS.value, 0.0)
    calls = {"ours": functools.partial(ours.run, count), **peers.runs}
    sides: dict[str, Callable[[], float]] = {
        name: functools.partial(measure_rate, call, count * batch_size, secs) for name, call in calls.items()
    }
    sides["matrix_product"] = functools.partial(measure_rate, *matrix_product(precision), secs / 4)
    with closing(CompilationCounter()) as compilations:
        rates = alternate(sides, num_repeats())
    peaks, flops = rates.pop("matrix_product"), flops_per_frame(ours.state.params, ours.config)
    row: dict[str, Any] = {
        "frames_per_sec": {name: spread(values) for name, values in rates.items()},
        **{f"ratio_to_{name}": ratio(rates["ours"], rates[name]) for name in peers.runs},
        "fraction_of_peak": ratio([flops * rate for rate in rates["ours"]], peaks),
        "matrix_product_gflops_per_sec": spread([peak / 1e9 for peak in peaks]),
        "mflop_per_frame": flops / 1e6,
        "loss_ours": loss,
        "loss_torch": peers.loss,
        "compilations_while_measured": compilations.count,
        **peers.notes,
    }
    print(
        f"{precision} {batch_size}: " + ", ".join(f"{n} {r['median']:,.0f}" for n, r in row["frames_per_sec"].items())
    )
    return row


def main() -> None:
    batch_sizes = _BATCH_SIZES.value or sized(["1024", "4096"], ["64"])
    figures = {
        precision: {size: measure(int(size), precision) for size in batch_sizes} for precision in _PRECISIONS.value
    }
    write_report(JSON.value, figures)


if __name__ == "__main__":
    run_app(main)
