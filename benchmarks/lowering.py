"""The programs that an accelerator would compile, lowered without one: FLOPs and bytes of a frame, and what they hold.

    python -m benchmarks.lowering --json lowering.json

FLOPs are counted by XLA in the program before its optimisations; so are bytes, which are those of all operations on
their own: fusing leaves out most of them. Beside FLOPs stand those of the products alone (`builders.flops_per_frame`).
"""

from collections.abc import Sequence
from typing import Any

import jax
from absl import app, flags

from benchmarks.builders import PolicyStep, Update, config_of, flops_per_frame
from benchmarks.harness import JSON, sized, write_report
from oni_jax.networks import cpu

_PLATFORM = flags.DEFINE_string("platform", "cuda", "Platform of the accelerator: cuda, rocm, tpu; or cpu.")
_PRECISIONS = flags.DEFINE_list("precisions", ["float32", "bfloat16"], "Precisions of the policy.")


def measure(precision: str) -> dict[str, Any]:
    """Lowers an update and a policy step."""
    batch_size, platform = sized(4096, 64), _PLATFORM.value
    with cpu.traced_for(platform):
        update = Update(config_of(batch_size, precision))
        lowered = {"update": update.lower(platform), "policy_step": PolicyStep(batch_size, precision).lower(platform)}
    figures = {name: program(own, batch_size) for name, own in lowered.items()}
    figures["update"]["mflop_per_frame_of_products"] = flops_per_frame(update.state.params, update.config) / 1e6
    for name, own in figures.items():
        print(
            f"{precision} {name}: {own['mflop_per_frame']:.1f} MFLOP and {own['kilobytes_per_frame']:.0f} kB a frame, "
            f"{own['convolutions']} convolutions, {own['products']} products"
        )
    return figures


def program(lowered: jax.stages.Lowered, num_frames: int) -> dict[str, Any]:
    """Returns the counts of a lowered program."""
    text, cost = lowered.as_text(), lowered.cost_analysis() or {}
    return {
        "mflop_per_frame": cost["flops"] / num_frames / 1e6,
        "kilobytes_per_frame": cost["bytes accessed"] / num_frames / 1e3,
        "convolutions": text.count("stablehlo.convolution"),
        "convolutions_in_bfloat16": sum("xbf16>" in line for line in text.splitlines() if ".convolution" in line),
        "products": text.count("stablehlo.dot_general"),
    }


def main(argv: Sequence[str]) -> None:
    del argv
    write_report(JSON.value, {precision: measure(precision) for precision in _PRECISIONS.value})


if __name__ == "__main__":
    app.run(main)
