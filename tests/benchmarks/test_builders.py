"""Benchmarks build with the convolutions of the platform that they are for, whatever this machine is."""

import pytest

from benchmarks.builders import PolicyStep, Update, config_of
from oni_jax.networks import cpu


@pytest.mark.parametrize("platform", ["cuda", pytest.param("cpu", marks=pytest.mark.slow)])
def test_update_and_policy_step_have_the_convolutions_of_their_platform(platform, monkeypatch):
    monkeypatch.setattr(cpu, "used", platform == "cpu")
    update = Update(config_of(32, "bfloat16")).lower(platform)
    step = PolicyStep(32, "bfloat16").lower(platform)
    for lowered, least in ((update, 3 * 3 - 1), (step, 3)):  # three layers, the first without a gradient of its input
        lines = [line for line in lowered.as_text().splitlines() if "stablehlo.convolution" in line]
        assert len(lines) == (least if platform == "cuda" else 0) and all("xbf16>" in line for line in lines)
        assert lowered.as_text().count("stablehlo.dot_general") > 3
    flops = [(lowered.cost_analysis() or {})["flops"] for lowered in (update, step)]
    assert flops[0] > 2 * flops[1] > 32e6
