"""ruff and pyright find nothing; the types of the tests themselves are checked among the slow ones."""

import subprocess
import sys

import pytest

from tests.processes import ROOT

COMMANDS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["pyright", "oni_jax", "launch", "benchmarks"],
    "types_of_tests": ["pyright", "tests"],
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "types_of_tests" else ()) for name in COMMANDS]
)
def test_clean(name):
    command = COMMANDS[name]
    result = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"
