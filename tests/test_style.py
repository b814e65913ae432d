"""ruff and pyrefly find nothing."""

import subprocess
import sys

import pytest

from tests.support.processes import ROOT

COMMANDS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["pyrefly", "check", "--python-interpreter-path", sys.executable, "--min-severity", "error"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_clean(name):
    command = COMMANDS[name]
    result = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"
