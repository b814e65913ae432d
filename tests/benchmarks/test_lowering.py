"""The accelerator's program is what is lowered, and not the one that suits this machine's CPU."""

import pytest

from benchmarks.builders import PolicyStep, Update, config_of
from benchmarks.lowering import program
from oni_jax.networks import cpu

BATCH_SIZE = 32


@pytest.mark.parametrize("platform", ["cuda", pytest.param("cpu", marks=pytest.mark.slow)])
def test_update_and_policy_step_are_lowered(platform):
    with cpu.traced_for(platform):
        update = program(Update(config_of(BATCH_SIZE, "bfloat16")).lower(platform), BATCH_SIZE)
        step = program(PolicyStep(BATCH_SIZE, "bfloat16").lower(platform), BATCH_SIZE)
    assert cpu.used is None
    for found, least in ((update, 3 * 3 - 1), (step, 3)):  # three layers, the first without a gradient of its input
        assert found["convolutions"] == found["convolutions_in_bfloat16"] == (least if platform == "cuda" else 0)
        assert found["products"] > 3 and found["kilobytes_per_frame"] > 1
    assert update["mflop_per_frame"] > 2 * step["mflop_per_frame"] > 1
