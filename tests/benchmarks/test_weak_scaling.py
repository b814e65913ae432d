"""Updates of two processes, as one run and apart, are timed."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_its_rates_are_written(tmp_path):
    command = [sys.executable, "-m", "benchmarks.weak_scaling", "--smoke", f"--json={tmp_path / 'found.json'}"]
    result = subprocess.run(command, capture_output=True, timeout=600)
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "found.json").read_text())["figures"]
    rates = figures["frames_per_sec"]
    assert rates.keys() == {"together", "in_step", "apart", "one"}
    assert all(rate["median"] > 0 for rate in rates.values()) and figures["processes"] == 2
