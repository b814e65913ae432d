"""Programs that a signal ends at once, since they have nothing to save."""

import signal
import subprocess
import sys

import pytest

from launch import program

PROGRAM = """
import time
from launch import program
from launch.ls import ListConfig
program.sys.exit(program.run_brief_program("ls", None, ListConfig(), print, lambda config: time.sleep(60)))
"""


@pytest.mark.parametrize("number, code, told", [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, -15, "")])
def test_a_signal_ends_it(number, code, told):
    process = subprocess.Popen(
        [sys.executable, "-uc", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline().startswith("ListConfig")
    process.send_signal(number)
    assert process.communicate(timeout=20)[1] == told and process.returncode == code


@pytest.mark.parametrize("name", ["inspect_reward", "report", "plot", "import_checkpoint", "ls", "submit"])
def test_these_do(name, monkeypatch):
    module = __import__(f"launch.{name}", fromlist=["main"])
    for target in (program, module):  # which makes others' `main`, or has imported it
        monkeypatch.setattr(target, "run_brief_program", lambda *words: 77, raising=False)
    assert module.main([]) == 77
